//! The MQTT 5 driver against real and scripted brokers.

#[cfg(test)]
mod mqtt {
    mod conformance;
    mod hostile;
    mod limits;
    mod messages;
    mod outages;
    mod sessions;
    mod speed;
    mod world;
}
