//! What the proxy says of itself: the schema of its targets under the fronted name, and its status.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::envelope::SDK_VERSION_SPOKEN;

use super::shared::Shared;

/// What targets have said of themselves.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// The last body of a STARTUP or POLLING, with the rank of its target: the preferred one counts.
    known: Option<(u32, Value)>,
    version: Option<SmolStr>,
    /// Whether STARTUP was published.
    pub announced: bool,
}

impl Schema {
    /// A target has said what it is. Says whether it counts.
    pub(super) fn learn(&mut self, rank: u32, said: Value, version: Option<&str>) -> bool {
        let counts = self.known.as_ref().is_none_or(|(known, _)| rank <= *known);
        if counts {
            self.version = version.map(SmolStr::new).or(self.version.take());
            self.known = Some((rank, said));
        }
        counts
    }

    /// The version that targets speak.
    pub(super) fn version(&self) -> SmolStr {
        self.version
            .clone()
            .unwrap_or(SmolStr::new_static(SDK_VERSION_SPOKEN))
    }

    /// A target was taken out: what another one says counts from now on, and until then what it said.
    pub(super) fn forget(&mut self, rank: u32) {
        if let Some((known, _)) = &mut self.known
            && *known == rank
        {
            *known = u32::MAX;
        }
    }

    /// A target speaks this version.
    pub(super) fn heard(&mut self, version: Option<SmolStr>) {
        if version.is_some() && self.known.is_none() {
            self.version = version;
        }
    }

    pub(super) fn said(&self) -> Option<&Value> {
        self.known.as_ref().map(|(_, said)| said)
    }
}

impl Shared {
    /// The body of STARTUP and POLLING: what the preferred target says, under the fronted name. `None`:
    /// no target has said anything yet.
    pub(super) fn lifecycle_body(&self) -> Option<Bytes> {
        let mut said = self.schema.lock().said().cloned()?;
        if let Some(title) = said.pointer_mut("/schema/info/title") {
            *title = self.settings.identity.as_str().into();
        }
        self.put_fronted_names(said.pointer_mut("/schema/capabilities"));
        self.put_fronted_names(said.get_mut("status"));
        Some(said.to_string().into())
    }

    /// Puts the fronted capability's name for that of a target.
    fn put_fronted_names(&self, by_capability: Option<&mut Value>) {
        let Some(Value::Object(capabilities)) = by_capability else {
            return;
        };
        let named = std::mem::take(capabilities);
        for (name, capability) in named {
            capabilities.insert(self.fronted_capability(&name).to_string(), capability);
        }
    }

    /// What `intersect_sdk.system_capability` answers: the machine that the proxy is on, in the SDK's form.
    /// What is not measured is 0.
    pub(super) fn core_status(&self) -> Bytes {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (total, available) = memory().unwrap_or((0, 0));
        let used = match total {
            0 => 0.0,
            total => 100.0 * (total - available.min(total)) as f64 / total as f64,
        };
        let uptime = self.started.elapsed().as_secs_f64();
        json!({
            "uptime": format!("PT{uptime:.6}S"),
            "logical_cpus": cpus,
            "physical_cpus": cpus,
            "cpu_percentages": vec![0.0; cpus],
            "service_cpu_percentage": 0.0,
            "memory_total": total,
            "memory_usage_percentage": used,
            "service_memory_percentage": 0.0,
            "disk_total": 0,
            "disk_usage_percentage": 0.0,
        })
        .to_string()
        .into()
    }

    /// What another status operation answers: the last status that the preferred target gave, or `null`.
    pub(super) fn status_text(&self) -> Bytes {
        let said = self.schema.lock().said().cloned();
        let mut status = said.and_then(|mut said| said.get_mut("status").map(Value::take));
        self.put_fronted_names(status.as_mut());
        let capability = Arc::clone(&self.settings.capability_name);
        let own = status.map(|status| status.get(&*capability).cloned().unwrap_or(status));
        own.unwrap_or(Value::Null).to_string().into()
    }
}

/// Total and available memory in bytes, where the system tells (Linux).
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some((line("MemTotal:")?, line("MemAvailable:")?))
}
