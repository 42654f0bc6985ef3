//! Back to a known state: after a cancel, a dropped future, a transaction, another caller's settings.

use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_sql::{Code, HandedOver, SqlError};

use super::Session;
use crate::errors::Phase;
use crate::wire::Said;

/// How long a cancelled statement may take to end before it is cancelled again.
const CANCEL_AGAIN: Duration = Duration::from_millis(500);
/// After that many cancels the session is given up.
const CANCELS_MAX: u32 = 4;
/// A cancel that came too late is taken away by the first ping; the next one sees that it is.
const PINGS_MAX: u32 = 3;

impl Session {
    /// Takes a cancel away that hit nothing: the server forgets it at the end of whatever it runs next.
    pub(super) async fn absorb_cancel(&mut self) -> Result<(), SqlError> {
        for _ in 0..PINGS_MAX {
            self.channel.ping();
            if self.finish(Phase::Control).await.is_ok() {
                self.link.forget_cancel();
                return Ok(());
            }
            if self.is_gone() {
                return Err(self.gone());
            }
        }
        self.link.retire("a cancel could not be taken back");
        Err(self.gone())
    }

    /// Reads what the server still has to say, whatever it is.
    async fn read_to_the_end(&mut self) -> Result<(), SqlError> {
        while !self.channel.is_idle() {
            match self.channel.next().await {
                Ok(Said::Prepared { id, .. }) => self.preparing = Some(id),
                Ok(_) => {}
                Err(broken) => return Err(self.broke(&broken, Phase::Control)),
            }
        }
        Ok(())
    }

    /// Cancels until the server has answered everything that was sent.
    async fn drain(&mut self) -> Result<(), SqlError> {
        for _ in 0..CANCELS_MAX {
            if let Some(canceller) = self.canceller.clone() {
                canceller.stop().await;
            }
            if self.is_gone() {
                return Err(self.gone());
            }
            if let Ok(read) = tokio::time::timeout(CANCEL_AGAIN, self.read_to_the_end()).await {
                return read;
            }
        }
        self.link.retire("the server did not stop");
        Err(self.gone())
    }

    pub(super) async fn clean(&mut self) -> Result<(), SqlError> {
        self.open = None;
        self.in_doubt = true;
        if self.is_gone() {
            return Err(self.gone());
        }
        if !self.channel.is_idle() {
            self.drain().await?;
        }
        // A cancel of the caller's may still be on its way; from here on there is nothing for it to hit.
        let link = self.link.clone();
        let permit = link.gate.acquire().await;
        link.set_busy(false);
        drop(permit);
        if link.cancel_was_asked() {
            self.absorb_cancel().await?;
        }
        if let Some(orphan) = self.preparing.take() {
            self.channel.close_statement(orphan);
        }
        // Nothing happens where no transaction is open.
        self.command("ROLLBACK", Phase::Control).await?;
        self.end_of_transaction();
        self.leave();
        Ok(())
    }

    pub(super) fn end_of_transaction(&mut self) {
        self.in_transaction = false;
        self.committed_early = false;
        self.has_done = false;
        self.has_left = false;
    }

    /// Temporary tables, variables, locks and prepared statements go; our own settings come back.
    pub(super) async fn restore(&mut self) -> Result<(), SqlError> {
        self.channel.reset();
        self.finish(Phase::Control).await?;
        self.statements.clear();
        self.make_ours(Phase::Control).await
    }

    pub(super) async fn end_transaction(
        &mut self,
        handed_over: HandedOver<'_>,
    ) -> Result<(), SqlError> {
        handed_over();
        let ended = self.command("COMMIT", Phase::Commit).await;
        let Err(mut error) = ended else {
            self.end_of_transaction();
            return Ok(());
        };
        if error.sent() == Sent::Maybe {
            error.detail_mut().code = Code::OutcomeUnknown;
        }
        if !self.is_gone() {
            // Whatever comes of it: the error of COMMIT alone says what is known. A session that did not
            // answer is given up by that.
            let _ = self.command("ROLLBACK", Phase::Control).await;
        }
        self.end_of_transaction();
        Err(error)
    }
}
