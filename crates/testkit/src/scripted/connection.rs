//! One scripted session.

use std::sync::Arc;

use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::stream::{Batch, BatchMax};
use mainstay_sql::{
    Access, Answer, AnswerMax, Begin, BoxFuture, Cancel, Column, Connection, HandedOver, Lineage,
    Position, Probe, SqlError, Value,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::reply::{End, OnCancel, Reply, give_way, interrupted};
use super::{Cancelled, Happened, Point, SessionView, State};

pub(crate) struct ScriptedConnection {
    id: u64,
    state: Arc<Mutex<State>>,
    cancelled: Arc<Cancelled>,
    is_closed: bool,
    /// A future was dropped and no clean-up has succeeded since.
    is_interrupted: bool,
    /// Rows of the started stream.
    rows: Option<std::vec::IntoIter<Vec<Value>>>,
}

impl ScriptedConnection {
    pub(crate) fn open(shared: &Arc<Mutex<State>>, access: Access) -> Self {
        let mut state = shared.lock();
        let id = state.next_session;
        state.next_session += 1;
        state.sessions.push(SessionView {
            id,
            access,
            in_transaction: false,
            is_busy: false,
        });
        state.note(Happened::Opened(id, access));
        ScriptedConnection {
            id,
            state: Arc::clone(shared),
            cancelled: Arc::new(Cancelled {
                requested: Mutex::new(false),
                told: Notify::new(),
            }),
            is_closed: false,
            is_interrupted: false,
            rows: None,
        }
    }

    fn misuse(&self, what: &'static str) -> SqlError {
        self.state.lock().note(Happened::Misused(self.id, what));
        SqlError::internal(what)
    }

    /// Plays the script of one call.
    async fn play(
        &mut self,
        point: Point,
        text: &str,
        handed_over: Option<HandedOver<'_>>,
    ) -> Result<Answer, SqlError> {
        if self.is_interrupted && point != Point::CleanUp {
            return Err(self.misuse("used after a dropped future without clean-up"));
        }
        if self.is_closed {
            return Err(super::reply::connection_lost());
        }
        let (reply, yields) = {
            let mut state = self.state.lock();
            state.note(Happened::Called(self.id, point, text.to_owned()));
            (state.reply(point, text), state.yields)
        };
        // Stays so if this future is dropped on the way.
        self.is_interrupted = true;
        *self.cancelled.requested.lock() = false;
        reply.before(yields).await;
        if reply.hands_over {
            self.hand_over(point, handed_over);
        }
        let end = self.under_way(&reply, yields).await;
        self.is_interrupted = false;
        self.settle(point, &end);
        match end {
            End::Answers(answer) => Ok(answer),
            End::Fails(error) | End::Breaks(error) => Err(error),
            End::Hangs => Ok(Answer::default()),
        }
    }

    fn hand_over(&self, point: Point, handed_over: Option<HandedOver<'_>>) {
        if let Some(tell) = handed_over {
            tell();
        }
        let mut state = self.state.lock();
        if let Some(session) = state.session(self.id) {
            session.is_busy = true;
            if point == Point::Begin {
                session.in_transaction = true;
            }
        }
        let counts = matches!(
            point,
            Point::Run | Point::Open | Point::Begin | Point::Commit
        );
        if counts {
            state.note(Happened::HandedOver(self.id, point));
        }
    }

    /// Waits for the scripted end or for a cancel request.
    async fn under_way(&self, reply: &Reply, yields: usize) -> End {
        let end = async {
            give_way(yields).await;
            if !reply.after.is_zero() {
                tokio::time::sleep(reply.after).await;
            }
            if matches!(reply.end, End::Hangs) {
                std::future::pending::<()>().await;
            }
            reply.end.clone()
        };
        let cancelled = async {
            loop {
                let told = self.cancelled.told.notified();
                if *self.cancelled.requested.lock() && reply.on_cancel != OnCancel::Ignores {
                    break;
                }
                told.await;
            }
        };
        tokio::select! {
            biased;
            end = end => end,
            () = cancelled => match (reply.on_cancel, &reply.end) {
                (OnCancel::Interrupts, _) => End::Fails(interrupted()),
                (_, End::Hangs) => End::Answers(Answer::default()),
                (_, end) => end.clone(),
            },
        }
    }

    /// What the server keeps after the end of a call.
    fn settle(&mut self, point: Point, end: &End) {
        let went_well = matches!(end, End::Answers(_) | End::Hangs);
        if matches!(end, End::Breaks(_)) {
            self.close();
            return;
        }
        let mut state = self.state.lock();
        let Some(session) = state.session(self.id) else {
            return;
        };
        session.is_busy = false;
        let was_open = session.in_transaction;
        match point {
            Point::Begin => session.in_transaction = went_well,
            Point::Commit | Point::Rollback | Point::CleanUp | Point::Reset if went_well => {
                session.in_transaction = false;
            }
            _ => {}
        }
        let ended = was_open && !session.in_transaction;
        if ended && point == Point::Commit {
            state.counts.commits += 1;
        } else if ended {
            state.counts.rollbacks += 1;
        }
    }

    fn close(&mut self) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        let mut state = self.state.lock();
        let was_open = state.session(self.id).is_some_and(|s| s.in_transaction);
        state.counts.rollbacks += u64::from(was_open);
        let id = self.id;
        state.sessions.retain(|session| session.id != id);
        state.note(Happened::Closed(id));
    }
}

impl Drop for ScriptedConnection {
    fn drop(&mut self) {
        self.close();
    }
}

struct ScriptedCancel {
    id: u64,
    state: Arc<Mutex<State>>,
    cancelled: Arc<Cancelled>,
}

impl Cancel for ScriptedCancel {
    fn cancel(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (reply, yields) = {
                let mut state = self.state.lock();
                (state.reply(Point::Cancel, ""), state.yields)
            };
            reply.before(yields).await;
            if matches!(reply.end, End::Hangs) {
                std::future::pending::<()>().await;
            }
            let mut state = self.state.lock();
            let busy = state.session(self.id).is_some_and(|s| s.is_busy);
            state.note(Happened::Cancelled(self.id, busy));
            drop(state);
            if busy {
                *self.cancelled.requested.lock() = true;
                self.cancelled.told.notify_waiters();
            }
        })
    }
}

impl Connection for ScriptedConnection {
    fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(async move { self.play(Point::Check, "", None).await.map(drop) })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(async move { self.play(Point::Reset, "", None).await.map(drop) })
    }

    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(async move {
            let busy = {
                let mut state = self.state.lock();
                state.session(self.id).is_some_and(|s| s.is_busy)
            };
            if busy {
                self.canceller().cancel().await;
            }
            self.rows = None;
            self.play(Point::CleanUp, "", None).await.map(drop)
        })
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        Arc::new(ScriptedCancel {
            id: self.id,
            state: Arc::clone(&self.state),
            cancelled: Arc::clone(&self.cancelled),
        })
    }

    fn run<'a>(
        &'a mut self,
        text: &'a str,
        _params: &'a [Value],
        max: AnswerMax,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        Box::pin(async move {
            let answer = self.play(Point::Run, text, Some(handed_over)).await?;
            max.check(&answer)?;
            Ok(answer)
        })
    }

    fn open<'a>(
        &'a mut self,
        text: &'a str,
        _params: &'a [Value],
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Arc<[Column]>, SqlError>> {
        Box::pin(async move {
            let answer = self.play(Point::Open, text, Some(handed_over)).await?;
            self.rows = Some(answer.rows.into_iter());
            Ok(answer.columns)
        })
    }

    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        Box::pin(async move {
            self.play(Point::NextBatch, "", None).await?;
            let Some(left) = &mut self.rows else {
                return Err(self.misuse("next_batch without a started statement"));
            };
            let rows: Vec<_> = left.by_ref().take(max.rows).collect();
            if rows.is_empty() {
                self.rows = None;
                return Ok(None);
            }
            Ok(Some(Batch { rows }))
        })
    }

    fn begin<'a>(&'a mut self, _begin: &'a Begin) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            let open = {
                let mut state = self.state.lock();
                state.session(self.id).is_some_and(|s| s.in_transaction)
            };
            if open {
                return Err(self.misuse("BEGIN inside an open transaction"));
            }
            self.play(Point::Begin, "", None).await.map(drop)
        })
    }

    fn commit<'a>(
        &'a mut self,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            self.play(Point::Commit, "", Some(handed_over))
                .await
                .map(drop)
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(async move { self.play(Point::Rollback, "", None).await.map(drop) })
    }

    fn describe<'a>(
        &'a mut self,
        what: &'a Describe,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        Box::pin(async move {
            self.play(Point::Describe, "", None).await?;
            let state = self.state.lock();
            let known = state.descriptions.iter().find(|(asked, _)| asked == what);
            Ok(match (known, what) {
                (Some((_, answer)), _) => answer.clone(),
                (None, Describe::Entities) => Description::Entities(Vec::new()),
                (None, Describe::Entity(_)) => Description::Entity(None),
                (None, Describe::ForeignKeys(_) | Describe::Children(_)) => {
                    Description::Relations(None)
                }
                (None, Describe::View(_)) => Description::View(None),
                (None, Describe::Functions) => Description::Functions(Arc::default()),
            })
        })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        Box::pin(async move {
            self.play(Point::Probe, "", None).await?;
            self.state.lock().probe.clone()
        })
    }

    fn lineage(&mut self) -> BoxFuture<'_, Result<Lineage, SqlError>> {
        Box::pin(async move { Ok(self.state.lock().lineage.clone()) })
    }

    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        Box::pin(async move {
            self.play(Point::Position, "", None).await?;
            Ok(self.state.lock().position)
        })
    }
}
