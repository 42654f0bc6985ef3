//! Faults between a client and its server, at a chosen moment.
