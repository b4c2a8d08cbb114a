//! Sizes as people write them: `4K`, `1M`, `16MB`, or plain bytes. K is 1,024.

/// Bytes of a text; also the parser that the command line uses.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let refused = || format!("{text} is no size; write bytes, or 4K, 1M, 2G");
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &upper[digits.len()..] {
        "" | "B" => 0,
        "K" | "KB" => 10,
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        _ => return Err(refused()),
    };
    let number: usize = digits.parse().map_err(|_| refused())?;
    number.checked_mul(1 << shift).ok_or_else(refused)
}

/// The shortest text that [`bytes`] reads as this number.
pub(crate) fn text(bytes: usize) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_as_people_do() {
        for (written, meant) in [("64", 64), ("4K", 4096), ("4kb", 4096), ("16M", 16 << 20), ("2G", 2 << 30)] {
            assert_eq!(bytes(written), Ok(meant));
        }
        for (number, shortest) in [(0, "0"), (100, "100"), (4096, "4K"), (16 << 20, "16M"), (1 << 31, "2G")] {
            assert_eq!(text(number), shortest);
            assert_eq!(bytes(&text(number)), Ok(number));
        }
        for nonsense in ["", "K", "4X", "-1", "99999999999999999999", "17179869184G"] {
            assert!(bytes(nonsense).is_err(), "{nonsense}");
        }
    }
}
