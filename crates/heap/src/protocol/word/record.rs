//! The state words of cache records and process records.

/// The state of a cache record's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    Free,
    /// One thread of a process uses the cache: `thread` is the thread's number within the
    /// process.
    Active {
        process: u8,
        thread: u16,
    },
    /// The process `by` is giving back the slots and slices that this cache of the dead `process`
    /// held.
    Reaping {
        process: u8,
        thread: u16,
        by: u8,
    },
}

/// A cache record's word. From the lowest bit up, it contains the state (2 bits), `process` (7),
/// `by` (7), `thread` (16) and the epoch (32). The epoch distinguishes two uses of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct CacheWord(pub(crate) u64);

const CACHE_PROCESS_AT: u32 = 2;
const CACHE_BY_AT: u32 = 9;
const CACHE_THREAD_AT: u32 = 16;
const CACHE_EPOCH_AT: u32 = 32;

impl CacheWord {
    /// The word of a record that no process has used yet.
    pub(crate) const UNUSED: Self = Self::free(0);

    const fn new(state: u64, process: u8, by: u8, thread: u16, epoch: u32) -> Self {
        Self(
            state
                | (process as u64 & 0x7F) << CACHE_PROCESS_AT
                | (by as u64 & 0x7F) << CACHE_BY_AT
                | (thread as u64) << CACHE_THREAD_AT
                | (epoch as u64) << CACHE_EPOCH_AT,
        )
    }

    pub(crate) const fn free(epoch: u32) -> Self {
        Self::new(0, 0, 0, 0, epoch)
    }

    pub(crate) const fn active(epoch: u32, process: u8, thread: u16) -> Self {
        Self::new(1, process, 0, thread, epoch)
    }

    pub(crate) const fn reaping(epoch: u32, process: u8, thread: u16, by: u8) -> Self {
        Self::new(2, process, by, thread, epoch)
    }

    pub(crate) const fn epoch(self) -> u32 {
        (self.0 >> CACHE_EPOCH_AT) as u32
    }

    pub(crate) const fn decode(self) -> Cache {
        let process = (self.0 >> CACHE_PROCESS_AT & 0x7F) as u8;
        let by = (self.0 >> CACHE_BY_AT & 0x7F) as u8;
        let thread = (self.0 >> CACHE_THREAD_AT) as u16;
        match self.0 & 3 {
            1 => Cache::Active { process, thread },
            2 => Cache::Reaping { process, thread, by },
            _ => Cache::Free,
        }
    }
}

/// The state of a process record's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Free,
    /// The process is writing the other fields of its record.
    Joining {
        pid: u32,
        namespace: u8,
    },
    Active {
        pid: u32,
        namespace: u8,
    },
    /// The process in slot `by` is giving back the resources of the dead `pid`.
    Reaping {
        pid: u32,
        by: u8,
    },
}

/// A process record's word: from the lowest bit up, it contains the state (2 bits), `by` (7), the
/// PID (23; `PID_MAX_LIMIT` is 2^22) and the epoch (32). The epoch distinguishes two uses of one
/// record. If no process is reaping the record, `by` contains the index of the process's PID
/// namespace in [`crate::tables::Tables::namespaces`], or 0 if the namespace is not known. A PID
/// is valid in its namespace only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ProcessWord(pub(crate) u64);

const PROCESS_BY_AT: u32 = 2;
const PROCESS_PID_AT: u32 = 9;
const PROCESS_EPOCH_AT: u32 = 32;

impl ProcessWord {
    const fn new(state: u64, pid: u32, by: u8, epoch: u32) -> Self {
        Self(
            state
                | (by as u64 & 0x7F) << PROCESS_BY_AT
                | (pid as u64 & 0x7F_FFFF) << PROCESS_PID_AT
                | (epoch as u64) << PROCESS_EPOCH_AT,
        )
    }

    pub(crate) const fn free(epoch: u32) -> Self {
        Self::new(0, 0, 0, epoch)
    }

    pub(crate) const fn joining(epoch: u32, pid: u32, namespace: u8) -> Self {
        Self::new(1, pid, namespace, epoch)
    }

    pub(crate) const fn active(epoch: u32, pid: u32, namespace: u8) -> Self {
        Self::new(2, pid, namespace, epoch)
    }

    pub(crate) const fn reaping(epoch: u32, pid: u32, by: u8) -> Self {
        Self::new(3, pid, by, epoch)
    }

    pub(crate) const fn epoch(self) -> u32 {
        (self.0 >> PROCESS_EPOCH_AT) as u32
    }

    pub(crate) const fn decode(self) -> Process {
        let pid = (self.0 >> PROCESS_PID_AT & 0x7F_FFFF) as u32;
        let by = (self.0 >> PROCESS_BY_AT & 0x7F) as u8;
        match self.0 & 3 {
            0 => Process::Free,
            1 => Process::Joining { pid, namespace: by },
            2 => Process::Active { pid, namespace: by },
            _ => Process::Reaping { pid, by },
        }
    }
}

const _: () = {
    assert!(size_of::<CacheWord>() == 8 && size_of::<ProcessWord>() == 8);
    // Fresh, zeroed memory is a valid empty heap.
    assert!(CacheWord::free(0).0 == 0 && ProcessWord::free(0).0 == 0);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_record_words_equal_their_parts() {
        let epoch = u32::MAX;
        let active = CacheWord::active(epoch, 127, u16::MAX);
        assert_eq!(active.decode(), Cache::Active { process: 127, thread: u16::MAX });
        assert_eq!(active.epoch(), epoch);
        let reaping = CacheWord::reaping(1, 3, 4, 127);
        assert_eq!(reaping.decode(), Cache::Reaping { process: 3, thread: 4, by: 127 });
        assert_eq!(CacheWord::free(epoch).decode(), Cache::Free);
        let pid = 1 << 22;
        let namespace = 127;
        let joining = ProcessWord::joining(epoch, pid, namespace);
        assert_eq!(joining.decode(), Process::Joining { pid, namespace });
        let active = ProcessWord::active(epoch, pid, namespace);
        assert_eq!(active.decode(), Process::Active { pid, namespace });
        assert_eq!(ProcessWord::reaping(1, pid, 5).decode(), Process::Reaping { pid, by: 5 });
        assert_eq!(ProcessWord::free(epoch).epoch(), epoch);
    }
}
