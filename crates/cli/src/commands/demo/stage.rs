//! What the demo plays on: one source of three endpoints over a sample in a temporary folder.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mainstay_config::{Configuration, Flag, Input, LoadOptions};
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, EndpointSpec, Role, Source};
use mainstay_server::{Assembly, Sources};
use mainstay_sql::{DataProxy, Database};
use tempfile::TempDir;
use tokio::time::Instant;

use super::outage::{Switch, Switched};

/// The endpoint that is taken away.
pub(super) const PRIMARY: &str = "alpha";

const SOURCE: &str = "demo";

/// The preset `balanced` but for two keys: writes wait for a new primary instead of failing at once, and
/// health is checked every second instead of every five, since all of it takes seconds.
const SETTINGS: &str = r#"
[sources.demo]
driver = "sqlite"
[sources.demo.policy.route]
primary_wait = "5s"
[sources.demo.policy.health]
interval = "1s"
[sources.demo.endpoints.alpha]
role = "primary"
[sources.demo.endpoints.beta]
role = "replica"
[sources.demo.endpoints.gamma]
role = "replica"
"#;

/// What ends gets this long.
const END_MAX: Duration = Duration::from_secs(3);

/// The first health checks take a moment.
const READY_MAX: Duration = Duration::from_secs(5);

/// The running source.
pub(super) struct Stage {
    proxy: DataProxy,
    sources: Sources,
    tasks: Tasks,
    switch: Switch,
    /// Removed with all that is in it when the stage is dropped.
    _folder: TempDir,
}

impl Stage {
    /// Builds it; its endpoints come up by themselves. Must be called inside a runtime.
    pub(super) fn build(chance: &Chance) -> anyhow::Result<Self> {
        let stage = Stage::bare(chance)?;
        stage.put_switch(stage.source().remove_endpoint(PRIMARY)?.member)?;
        Ok(stage)
    }

    /// Without the switch.
    fn bare(chance: &Chance) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("mainstay-demo-")
            .tempdir()
            .context("no temporary folder can be made; set TMPDIR to one that can be written")?;
        let configuration = configuration(&folder)?;
        let tasks = Tasks::new();
        let sources = Assembly::build(&configuration, &tasks, chance)
            .map_err(|error| anyhow::anyhow!(error.to_string()))?;
        let served = sources.get(SOURCE).context("the demo has a source")?;
        Ok(Stage {
            proxy: served.proxy().clone(),
            switch: Switch::default(),
            sources,
            tasks,
            _folder: folder,
        })
    }

    /// The proxy that callers use.
    pub(super) fn proxy(&self) -> &DataProxy {
        &self.proxy
    }

    /// The engine's source behind it.
    pub(super) fn source(&self) -> &Source<Arc<dyn Database>> {
        self.proxy.source()
    }

    /// Background work of the demo.
    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The primary refuses every connection.
    pub(super) fn take_primary_away(&self) {
        self.switch.turn_off(true);
    }

    /// It answers again.
    pub(super) fn bring_primary_back(&self) {
        self.switch.turn_off(false);
    }

    /// Ends everything.
    pub(super) async fn close(&self) {
        self.sources.close(END_MAX).await;
        self.tasks.shutdown(END_MAX).await;
    }

    /// Puts the switch between the source and the primary that was taken out of it. The prober runs
    /// already and may have promoted another endpoint meanwhile, which then is a replica again.
    fn put_switch(&self, primary: Arc<dyn Database>) -> anyhow::Result<()> {
        let source = self.source();
        let switched = Switched::new(primary, self.switch.clone());
        let spec = EndpointSpec::new(PRIMARY, Arc::new(switched) as Arc<dyn Database>);
        source.add_endpoint(spec.role(Role::Replica))?;
        self.begin_with_primary()
    }

    fn begin_with_primary(&self) -> anyhow::Result<()> {
        Ok(self
            .source()
            .set_primary(Some(PRIMARY), "the demo begins")?)
    }

    /// Waits until all endpoints are up and the primary is the one that is taken away later. Dropped,
    /// it leaves nothing behind.
    pub(super) async fn ready(&self) -> anyhow::Result<()> {
        let end = Instant::now() + READY_MAX;
        let is_up = || self.source().status().iter().all(|one| one.health == "up");
        // The prober tells nobody that an endpoint is up for the first time.
        while !is_up() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A decision that the prober had begun before the switch was put may have come after it.
        self.begin_with_primary()
    }
}

fn configuration(folder: &TempDir) -> anyhow::Result<Configuration> {
    let text = |path: std::path::PathBuf| {
        let path = path.into_os_string().into_string();
        path.map_err(|_| {
            anyhow::anyhow!("the temporary folder's name is no text; set TMPDIR to another")
        })
    };
    let flag = |path: &str, value: String| Flag {
        name: "demo".to_owned(),
        path: path.to_owned(),
        value,
    };
    let options = LoadOptions {
        files: vec![Input::Text {
            name: "demo.toml".to_owned(),
            text: SETTINGS.to_owned(),
        }],
        flags: vec![
            flag("server.data_dir", text(folder.path().to_owned())?),
            flag("sources.demo.path", text(folder.path().join("demo.db"))?),
        ],
        ..LoadOptions::default()
    };
    let loaded = Configuration::load(options);
    let loaded =
        loaded.map_err(|problems| anyhow::anyhow!("the demo's configuration: {}", problems[0]))?;
    Ok(loaded.configuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_demo_begins_with_its_primary_though_another_was_promoted_while_it_was_built() {
        let stage = Stage::bare(&Chance::seeded(1)).unwrap();
        let taken = stage.source().remove_endpoint(PRIMARY).unwrap();
        let promoted = stage.source().set_primary(Some("gamma"), "no primary");
        promoted.unwrap();
        stage.put_switch(taken.member).unwrap();
        stage.ready().await.unwrap();
        let snapshot = stage.source().snapshot();
        let primary = snapshot.primary().map(|placed| placed.endpoint.id.clone());
        assert_eq!(primary.as_ref().map(|id| id.as_str()), Some(PRIMARY));
        assert_eq!(snapshot.endpoints.len(), 3);
        stage.close().await;
    }
}
