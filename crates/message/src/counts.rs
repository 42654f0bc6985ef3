//! What a proxied service counts beside what the engine counts of its calls.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        /// Counters of one proxied service; they rise and never fall.
        #[derive(Debug, Default)]
        pub struct Counts { $($(#[$meta])* pub $name: Count,)+ }

        impl Counts {
            /// Names and values.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)+]
            }
        }
    };
}

/// One counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Raises it by one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

counts! {
    /// Requests taken in: served, answered by the proxy itself, or refused.
    requests,
    /// Replies published and confirmed, with those of errors.
    replies,
    /// Of them with an error.
    error_replies,
    /// Requests that the broker gave once more; they were not run again.
    requests_repeated,
    /// Requests dropped: a header missing or malformed, no content type, too many headers.
    requests_malformed,
    /// Requests dropped: for somebody else.
    requests_misdirected,
    /// Requests refused: larger than is taken.
    requests_too_large,
    /// Requests refused: too many at once.
    requests_shed,
    /// Requests that the proxy answers by itself, without an answer: the broker was not to keep them, and too many
    /// answers waited for their confirmation.
    requests_unanswered,
    /// Replies of targets to attempts that had ended; dropped.
    replies_late,
    /// Replies that another than the target of the attempt sent, or for another operation; dropped.
    replies_foreign,
    /// Messages of targets that could not be read; dropped.
    messages_malformed,
    /// Events relayed under the fronted name, with results of jobs.
    events_relayed,
    /// Events and requests of targets that the broker gave once more; they were not relayed again.
    messages_repeated,
    /// Requests of targets relayed to callers.
    requests_relayed,
    /// Results of a job from a target that does not have it any more; dropped.
    results_late,
    /// Jobs acknowledged by a target.
    jobs_accepted,
    /// Jobs that ended with their last result.
    jobs_finished,
    /// Jobs given to another target because no result came in time.
    jobs_redriven,
    /// Jobs that could not be finished.
    jobs_failed,
    /// Replies published again after a restart: it is not known whether they had arrived.
    replies_again,
    /// Health checks sent.
    checks,
    /// Health checks without a good answer.
    checks_missed,
    /// Targets set aside because a request failed there.
    targets_set_aside,
    /// Changes that the store of jobs could not write.
    store_failures,
}
