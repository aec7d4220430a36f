//! The reply to a telemetry command: a dictionary of numbers, strings and arrays.
//!
//! A reply holds at most 256 entries and 16 KiB (RTE_TEL_MAX_DICT_ENTRIES, MAX_OUTPUT_LEN). The
//! commands stay far below both limits.

use core::ffi::{CStr, c_int};
use std::ffi::CString;

use crate::dpdk::{Functions, STRING_VALUES, TelData, UNSIGNED_VALUES};

/// A reply under construction.
pub(crate) struct Answer<'a> {
    dpdk: &'a Functions,
    data: *mut TelData,
}

impl<'a> Answer<'a> {
    /// Begins a dictionary.
    ///
    /// # Safety
    /// DPDK passed `data` to the running handler, which outlives the answer.
    pub(crate) unsafe fn new(dpdk: &'a Functions, data: *mut TelData) -> Self {
        // SAFETY: the caller's promise.
        unsafe { (dpdk.start_dict)(data) };
        Self { dpdk, data }
    }

    pub(crate) fn number(&mut self, name: &CStr, value: u64) {
        // SAFETY: a dictionary was begun; the name is a C string, which DPDK copies.
        unsafe { (self.dpdk.add_unsigned)(self.data, name.as_ptr(), value) };
    }

    pub(crate) fn text(&mut self, name: &CStr, value: &str) {
        let Ok(value) = CString::new(printable(value)) else { return };
        // SAFETY: a dictionary was begun; both are C strings, which DPDK copies.
        unsafe { (self.dpdk.add_string)(self.data, name.as_ptr(), value.as_ptr()) };
    }

    pub(crate) fn numbers(&mut self, name: &CStr, values: &[u64]) {
        self.array(name, UNSIGNED_VALUES, |dpdk, array| {
            for value in values {
                // SAFETY: an array of numbers was begun.
                unsafe { (dpdk.push_unsigned)(array, *value) };
            }
        });
    }

    pub(crate) fn texts(&mut self, name: &CStr, values: &[String]) {
        self.array(name, STRING_VALUES, |dpdk, array| {
            for value in values {
                let Ok(value) = CString::new(printable(value)) else { continue };
                // SAFETY: an array of strings was begun; DPDK copies this one.
                unsafe { (dpdk.push_string)(array, value.as_ptr()) };
            }
        });
    }

    fn array(&mut self, name: &CStr, kind: c_int, fill: impl Fn(&Functions, *mut TelData)) {
        // SAFETY: the call has no conditions.
        let array = unsafe { (self.dpdk.alloc)() };
        if array.is_null() {
            return;
        }
        // SAFETY: a new structure.
        unsafe { (self.dpdk.start_array)(array, kind) };
        fill(self.dpdk, array);
        // SAFETY: a dictionary was begun; with 0 DPDK owns the array and frees it.
        let added = unsafe { (self.dpdk.add_container)(self.data, name.as_ptr(), array, 0) };
        if added != 0 {
            // SAFETY: DPDK refused the array, so this function still owns it.
            unsafe { (self.dpdk.free_data)(array) };
        }
    }
}

/// DPDK up to 22.11 does not escape strings in JSON, so this function omits the characters that
/// would break it.
fn printable(text: &str) -> String {
    let is_plain = |c: &char| (' '..='~').contains(c) && *c != '"' && *c != '\\';
    text.chars().filter(is_plain).collect()
}
