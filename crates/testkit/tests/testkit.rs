//! The testkit proved against real servers.

#[cfg(test)]
mod testkit {
    mod cluster;
    mod fault;
    mod intersect;
    mod mariadb;
    mod mosquitto;
    mod python;
    mod rabbitmq;
    mod server;
}
