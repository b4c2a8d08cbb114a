//! The last lines of a stream, for the moment when its process is gone and somebody asks what it said.

/// Enough for twenty lines of any traceback.
const KEPT_BYTES: usize = 32 * 1024;
const KEPT_LINES: usize = 20;
const SHOWN_CHARACTERS: usize = 400;

/// Keeps the end of what went through it.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(&chunk[chunk.len().saturating_sub(KEPT_BYTES)..]);
        // Cut rarely, so that each byte is moved once on average and not with each chunk.
        if self.bytes.len() > 4 * KEPT_BYTES {
            self.bytes.drain(..self.bytes.len() - KEPT_BYTES);
        }
    }

    /// The last lines as a terminal would have left them: of a progress bar, its last state; blank lines at the end left out.
    pub(super) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut lines: Vec<String> = text.trim_end().rsplit('\n').take(KEPT_LINES).map(shown).collect();
        lines.reverse();
        if lines.iter().all(String::is_empty) {
            lines.clear();
        }
        lines
    }
}

fn shown(line: &str) -> String {
    let line = line.trim_end();
    let line = line.rsplit('\r').find(|state| !state.trim().is_empty()).unwrap_or(line);
    let mut characters = line.chars();
    let mut text: String = characters.by_ref().take(SHOWN_CHARACTERS).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_twenty_lines_are_kept() {
        let mut tail = Tail::default();
        assert!(tail.lines().is_empty());
        for number in 0..50_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        tail.push(b"no end");
        let lines = tail.lines();
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[0], "line 49981");
        assert_eq!(lines[19], "no end");
    }

    #[test]
    fn a_progress_bar_leaves_its_last_state() {
        let mut tail = Tail::default();
        tail.push(b"\r 10%\r 20%\nE\r\n\n \n");
        assert_eq!(tail.lines(), [" 20%", "E"]);
    }

    #[test]
    fn bytes_that_are_no_text_and_endless_lines_are_shown_somehow() {
        let mut tail = Tail::default();
        tail.push(&[b'\xff'; 200_000]);
        assert_eq!(tail.lines()[0].chars().count(), SHOWN_CHARACTERS + 1);
        let mut blank = Tail::default();
        blank.push(b"\n\n  \n");
        assert!(blank.lines().is_empty());
    }
}
