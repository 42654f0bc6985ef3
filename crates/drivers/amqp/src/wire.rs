//! AMQP 0-9-1 on the wire: frames, methods, properties and tables. Nothing here knows a connection.

mod frame;
mod method;
mod output;
mod properties;
mod reader;
mod table;
mod writer;

pub(crate) use frame::{Frame, Kind, OVERHEAD, split};
pub(crate) use method::Incoming;
pub(crate) use output::Output;
pub(crate) use properties::{
    Content, read_content, read_correlation, write_expiration, write_expires, write_properties,
};
pub(crate) use writer::{
    BASIC_ACK, BASIC_CONSUME, BASIC_PUBLISH, BASIC_QOS, CHANNEL_CLOSE, CHANNEL_CLOSE_OK,
    CHANNEL_OPEN, CONFIRM_SELECT, CONNECTION_CLOSE, CONNECTION_CLOSE_OK, CONNECTION_OPEN,
    EXCHANGE_DECLARE, FrameWriter, QUEUE_BIND, QUEUE_DECLARE, START_OK, TUNE_OK,
};

#[cfg(test)]
mod tests;
