//! What every driver of a message broker must do, against mosquitto.

use std::sync::Arc;

use mainstay_engine::BoxFuture;
use mainstay_engine::tasks::Tasks;
use mainstay_message::Broker;
use mainstay_testkit::conformance::broker::BrokerFixture;
use mainstay_testkit::mosquitto::MosquittoOptions;

use super::world::World;

struct Fixture(World);

impl BrokerFixture for Fixture {
    fn open(&self, name: &str) -> Arc<dyn Broker> {
        Arc::new(self.0.open(name))
    }

    fn open_unwelcome(&self) -> Arc<dyn Broker> {
        let mut settings = self.0.settings("unwelcome");
        settings.password = Some(Arc::new(|| Ok("wrong".to_owned())));
        Arc::new(self.0.open_with(settings))
    }

    fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.0.broker.stop().await.unwrap() })
    }

    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.0.broker.start_again().await.unwrap() })
    }

    fn freeze(&self) {
        self.0.broker.sigstop().unwrap();
    }

    fn thaw(&self) {
        self.0.broker.sigcont().unwrap();
    }

    /// mosquitto looks for receivers when a message with quality of service 2 is released, and says
    /// nothing then.
    fn tells_of_nobody(&self) -> bool {
        false
    }
}

mainstay_testkit::broker_conformance_tests!(Fixture(World::new(MosquittoOptions::new()).await));
