//! What the native commands share.

use std::io::{ErrorKind, Write as _, stdout};

/// Writes to standard output; a reader that has seen enough (`head`) is no error.
///
/// # Errors
/// Any other failure, as a sentence.
pub fn print(text: &str) -> Result<(), String> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
