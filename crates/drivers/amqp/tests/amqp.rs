//! The driver against real brokers, and against one that breaks the protocol.

#[cfg(test)]
mod amqp {
    mod conformance;
    mod fixture;
    mod hostile;
    mod losses;
    mod permissions;
    mod windows;
}
