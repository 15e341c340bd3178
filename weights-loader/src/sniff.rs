//! What a file really is when it is not what its name says, judged by its first bytes.

/// Names the well-known kinds of file that are found where a model file should be, with the remedy.
///
/// `first` are the first bytes of the file; 8 are enough for all but web pages behind white space.
/// `None` means: nothing known. The answer is a clause for an error message, so it starts in lower case.
#[must_use]
pub fn recognise(first: &[u8]) -> Option<&'static str> {
    if is_lfs_pointer(first) {
        return Some(
            "it is a Git LFS pointer, not the file itself; download the real file (`git lfs pull`, or the host's download link)",
        );
    }
    if is_web_page(first) {
        return Some(
            "a web page came back instead of the file; check the address (a static host may answer with its start page when a file is missing)",
        );
    }
    if first.starts_with(&[0x1f, 0x8b]) {
        return Some(
            "it is gzip-compressed; unpack it, or let the server declare `Content-Encoding: gzip`",
        );
    }
    if first.starts_with(b"PK\x03\x04") || first.starts_with(&[0x80, 0x02]) {
        return Some(
            "it is a PyTorch pickle checkpoint (.bin, .ckpt, .pt), which can run code when it is opened; use the model's .safetensors file",
        );
    }
    if first.starts_with(b"GGUF") {
        return Some("it is a GGUF file; use the model's .safetensors file");
    }
    if first.starts_with(b"{\"") || first.starts_with(b"{\n") || first.starts_with(b"{\r") {
        return Some("it is JSON text, not tensors; check which file the address names");
    }
    None
}

/// Whether these are the first bytes of the text file that Git LFS leaves in place of a large file.
#[must_use]
pub fn is_lfs_pointer(first: &[u8]) -> bool {
    // Header lengths are 8 bytes long, so the stream knows only "version " at the time it has to decide.
    let full = b"version https://git-lfs";
    first.len() >= 8 && full.starts_with(&first[..first.len().min(full.len())])
}

/// Whether these are the first bytes of an HTML or XML document (white space and a byte-order mark may precede).
#[must_use]
pub fn is_web_page(first: &[u8]) -> bool {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
    let text = text.trim_ascii_start();
    // Five characters tell, and no more may be there: `<!DOC` out of 8 bytes with leading line breaks.
    ["<!doc", "<html", "<head", "<body", "<?xml", "<!--"]
        .iter()
        .any(|tag| {
            text.get(..tag.len())
                .is_some_and(|t| t.eq_ignore_ascii_case(tag.as_bytes()))
        })
}
