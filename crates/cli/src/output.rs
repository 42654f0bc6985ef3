//! What the program writes: stdout for answers, stderr for complaints.

use std::io::{self, IsTerminal, Write};

/// Columns where the terminal does not tell.
const WIDTH: usize = 100;

/// Writes to stdout at once. A closed pipe is an error that ends the program quietly.
pub(crate) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a line to stderr; if nobody can read it, nothing can be done.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Columns of the terminal on stdout.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0).max(20))
}

/// Rows of the terminal on stdout, if it is one.
pub(crate) fn height() -> Option<usize> {
    terminal_size::terminal_size().map(|(_, height)| usize::from(height.0))
}

/// Whether a person sees stdout now.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Colours, where they are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For stdout: a terminal, and no `NO_COLOR`.
    pub(crate) fn stdout() -> Self {
        Paint {
            on: is_terminal() && !no_color(),
        }
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether the user asked for no colours (<https://no-color.org>).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// A picture that is drawn over itself, line by line, so that it does not flicker.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    lines: usize,
}

impl Picture {
    /// Draws over what was drawn last. Lines are plain or painted text no wider than the terminal.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let fit = height().map_or(lines.len(), |height| height.saturating_sub(1));
        let lines = &lines[..lines.len().min(fit)];
        let mut text = String::new();
        if self.lines > 0 {
            text.push_str(&format!("\x1b[{}A\r", self.lines));
        }
        for line in lines {
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.lines = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// The beginning of a text, as wide as it may be.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}
