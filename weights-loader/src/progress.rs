//! How far a load of several files has come.

/// One report. Reports come with every chunk; whoever shows them throttles them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The file that is arriving.
    pub file: String,
    /// Bytes received of all files so far.
    pub received_bytes: u64,
    /// Bytes of all files; `None` while unknown. Never below `received_bytes`.
    pub total_bytes: Option<u64>,
}

impl Progress {
    /// The part that is done, 0 to 1; `None` while the total is unknown.
    #[must_use]
    pub fn fraction(&self) -> Option<f64> {
        match self.total_bytes {
            None => None,
            Some(0) => Some(1.0),
            Some(total) => Some((self.received_bytes as f64 / total as f64).min(1.0)),
        }
    }
}

/// Sums the bytes of files that arrive one after the other.
#[derive(Debug, Clone)]
pub struct ProgressSum {
    file: String,
    finished_bytes: u64,
    file_bytes: u64,
    total_bytes: Option<u64>,
}

impl ProgressSum {
    /// `total_bytes` of all files, where known.
    #[must_use]
    pub fn new(total_bytes: Option<u64>) -> Self {
        Self {
            file: String::new(),
            finished_bytes: 0,
            file_bytes: 0,
            total_bytes,
        }
    }

    /// The previous file, if any, is complete, and this one begins.
    pub fn start(&mut self, file: &str) -> Progress {
        self.finished_bytes = self.finished_bytes.saturating_add(self.file_bytes);
        self.file_bytes = 0;
        file.clone_into(&mut self.file);
        self.report()
    }

    /// So many bytes of the current file have arrived so far. A smaller number than before means that it began anew.
    pub fn received(&mut self, file_bytes: u64) -> Progress {
        self.file_bytes = file_bytes;
        self.report()
    }

    fn report(&mut self) -> Progress {
        let received_bytes = self.finished_bytes.saturating_add(self.file_bytes);
        // A server may announce a compressed length and deliver more: an unknown total is honest, 110 % is not.
        self.total_bytes = self.total_bytes.filter(|&total| received_bytes <= total);
        Progress {
            file: self.file.clone(),
            received_bytes,
            total_bytes: self.total_bytes,
        }
    }
}
