//! Headers of a message: pairs of texts, in their order.

use smol_str::SmolStr;

/// Headers of a message: MQTT's user properties, AMQP's header table. The order is kept and a name may
/// stand more than once, as MQTT allows; the last one counts, as it does for the SDK.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(SmolStr, SmolStr)>);

impl Headers {
    /// Headers that a message of INTERSECT may have. Each costs more memory than it takes on the wire: of a message
    /// with more a driver may leave out all but this many and one, and the face drops it.
    pub const COUNT_MAX: usize = 1000;

    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// None, with room for so many.
    pub fn with_capacity(count: usize) -> Self {
        Headers(Vec::with_capacity(count))
    }

    /// The value of a name; of several the last.
    pub fn get(&self, name: &str) -> Option<&str> {
        let fitting = self.0.iter().rev().find(|(known, _)| known == name);
        fitting.map(|(_, value)| value.as_str())
    }

    /// Adds one at the end.
    pub fn push(&mut self, name: impl Into<SmolStr>, value: impl Into<SmolStr>) {
        self.0.push((name.into(), value.into()));
    }

    /// Sets one: in the place of the first of that name, of which no other stays, or at the end.
    pub fn set(&mut self, name: &str, value: impl Into<SmolStr>) {
        match self.0.iter().position(|(known, _)| known == name) {
            Some(place) => {
                self.0[place].1 = value.into();
                let mut at = 0;
                self.0.retain(|(known, _)| {
                    at += 1;
                    at - 1 <= place || known != name
                });
            }
            None => self.push(name, value),
        }
    }

    /// Takes every one of that name out.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The pairs in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values together.
    pub fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }
}

impl<N: Into<SmolStr>, V: Into<SmolStr>> FromIterator<(N, V)> for Headers {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(pairs: T) -> Self {
        let pairs = pairs.into_iter();
        Headers(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_name_counts_and_setting_leaves_one() {
        let mut headers: Headers = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(headers.get("a"), Some("3"));
        headers.set("a", "4");
        headers.set("c", "5");
        let pairs: Vec<_> = headers.iter().collect();
        assert_eq!(pairs, [("a", "4"), ("b", "2"), ("c", "5")]);
        headers.remove("b");
        assert_eq!((headers.len(), headers.bytes()), (2, 4));
    }
}
