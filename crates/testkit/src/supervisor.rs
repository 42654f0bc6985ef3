//! A small shell process between a test and its server. It holds the read end of a pipe: when the
//! test ends in whatever way, the pipe closes, and the shell ends the server and removes its folder.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};

use crate::account::Account;
use crate::process;

/// `$1` is the server's folder, `$2` the signal that ends it, then come the program and its arguments.
const SCRIPT: &str = r#"
folder=$1 signal=$2 server=
shift 2
while read -r word; do
    case $word in
        start)
            "$@" </dev/null >>"$folder/log" 2>&1 &
            server=$!
            echo "$server" ;;
        ended)
            wait "$server"
            echo "$?"
            server= ;;
    esac
done
if [ -n "$server" ]; then
    kill "-$signal" "$server"
    kill -CONT "$server"
    wait "$server"
fi
rm -rf "$folder"
"#;

/// The supervisor of one server for the whole life of the server's folder.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    server: Option<i32>,
}

impl Supervisor {
    /// A supervisor for the program with these arguments; nothing runs yet. `signal` ends a server that
    /// still runs when the supervisor is told to go.
    pub(crate) fn start(
        account: Account,
        folder: &Path,
        signal: &str,
        program: &[OsString],
    ) -> Result<Self> {
        let mut shell = account
            .command("sh")
            .args(["-c", SCRIPT, "supervisor"])
            .arg(folder)
            .arg(signal)
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Out of reach of a Ctrl-C at the test: the closed pipe is what ends it.
            .process_group(0)
            .spawn()
            .context("cannot run `sh`")?;
        let orders = shell.stdin.take();
        let answers = shell
            .stdout
            .take()
            .context("the supervisor has no output")?;
        Ok(Self {
            shell,
            orders,
            answers: BufReader::new(answers),
            server: None,
        })
    }

    /// The server's process id while it has not been reaped.
    pub(crate) fn server(&self) -> Option<i32> {
        self.server
    }

    /// Starts the server's process.
    pub(crate) fn launch(&mut self) -> Result<i32> {
        if let Some(pid) = self.server {
            bail!("the server runs already (pid {pid}): stop it first");
        }
        let pid = self.ask("start")?;
        self.server = Some(pid);
        Ok(pid)
    }

    /// Takes note that the server's process has ended. Until then its pid cannot belong to another.
    pub(crate) fn reap(&mut self) -> Result<i32> {
        let status = self.ask("ended")?;
        self.server = None;
        Ok(status)
    }

    fn ask(&mut self, order: &str) -> Result<i32> {
        let orders = self.orders.as_mut().context("the supervisor has ended")?;
        writeln!(orders, "{order}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim()
            .parse()
            .with_context(|| format!("the supervisor answered {line:?} to {order}"))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(server) = self.server {
            // A stopped backend would not see its end coming.
            process::continue_tree(server);
        }
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}
