//! The functions that DPDK calls: this library's callbacks of a device, which call the program's,
//! and its callbacks before and after each message.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::device::{self, Device};
use crate::dpdk::{Callbacks, Functions, MessageCallbacks, MessageStart, NOT_HANDLED, functions};
use crate::life::{Event, Message};
use crate::paths;

/// Requests of a front end (vhost-user's specification, "Front-end message types").
mod request {
    pub(super) const SET_MEM_TABLE: u32 = 5;
    pub(super) const GET_VRING_BASE: u32 = 11;
    pub(super) const SET_VRING_ENABLE: u32 = 18;
    pub(super) const SEND_RARP: u32 = 19;
    pub(super) const ADD_MEM_REG: u32 = 37;
    pub(super) const REM_MEM_REG: u32 = 38;
}

/// The program's callbacks with this library's in front of some.
pub(crate) fn in_front(own: Callbacks) -> Callbacks {
    Callbacks {
        new_device: Some(new_device),
        destroy_device: Some(destroy_device),
        vring_state_changed: Some(vring_state_changed),
        new_connection: Some(new_connection),
        destroy_connection: Some(destroy_connection),
        ..own
    }
}

static MESSAGES: MessageCallbacks = MessageCallbacks { before, after };

/// The program's callbacks for a device.
fn own(functions: Option<&Functions>, device: c_int) -> Option<Callbacks> {
    paths::of(&paths::name(functions?, device)).0
}

unsafe extern "C" fn new_connection(number: c_int) -> c_int {
    let Some(functions) = functions() else { return 0 };
    let path = paths::name(functions, number);
    let (own, flags) = paths::of(&path);
    Device::connect(number, &path, flags);
    // SAFETY: the callbacks live as long as the process; DPDK copies their addresses.
    let result = unsafe {
        (functions.rte_vhost_extern_callback_register)(number, &raw const MESSAGES, null_mut())
    };
    if result != 0 {
        record(number, Event::GivenUp);
    }
    let Some(call) = own.and_then(|own| own.new_connection) else { return 0 };
    // SAFETY: the program's callback, called as DPDK would.
    unsafe { call(number) }
}

unsafe extern "C" fn new_device(number: c_int) -> c_int {
    let functions = functions();
    record(number, Event::Started);
    let Some(call) = own(functions, number).and_then(|own| own.new_device) else { return 0 };
    // SAFETY: as above.
    let result = unsafe { call(number) };
    if result != 0 {
        record(number, Event::Stopped);
    }
    result
}

unsafe extern "C" fn destroy_device(number: c_int) {
    record(number, Event::Stopped);
    if let Some(call) = own(functions(), number).and_then(|own| own.destroy_device) {
        // SAFETY: as above.
        unsafe { call(number) };
    }
    if let Some(device) = device::find(number) {
        device.report_end();
    }
}

unsafe extern "C" fn vring_state_changed(number: c_int, ring: u16, is_ready: c_int) -> c_int {
    record(number, Event::Ready(ring.into(), is_ready != 0));
    let call = own(functions(), number).and_then(|own| own.vring_state_changed);
    // SAFETY: as above.
    call.map_or(0, |call| unsafe { call(number, ring, is_ready) })
}

unsafe extern "C" fn destroy_connection(number: c_int) {
    record(number, Event::Disconnected);
    if let Some(call) = own(functions(), number).and_then(|own| own.destroy_connection) {
        // SAFETY: as above.
        unsafe { call(number) };
    }
}

unsafe extern "C" fn before(number: c_int, message: *mut c_void) -> c_int {
    // SAFETY: DPDK passes a message, whose structure has room for every message; DPDK has received
    // at least the request.
    let start = unsafe { message.cast::<MessageStart>().read_unaligned() };
    record(number, Event::Before(classify(start.request, start.ring, start.number)));
    NOT_HANDLED
}

unsafe extern "C" fn after(number: c_int, _: *mut c_void) -> c_int {
    record(number, Event::After);
    NOT_HANDLED
}

fn classify(request: u32, ring: u32, number: u32) -> Message {
    match request {
        request::SET_MEM_TABLE | request::ADD_MEM_REG | request::REM_MEM_REG => Message::Table,
        request::GET_VRING_BASE => Message::StopsRing(ring as usize),
        request::SET_VRING_ENABLE if number == 0 => Message::StopsRing(ring as usize),
        request::SEND_RARP => Message::Announcement,
        _ => Message::Other,
    }
}

fn record(number: c_int, event: Event) {
    if let Some(device) = device::find(number) {
        device.record(functions(), event);
    }
}

/// DPDK must serve the device from now on.
pub(crate) fn give_up(number: c_int) {
    record(number, Event::GivenUp);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_stop_ring_are_recognized() {
        assert_eq!(classify(11, 3, 0), Message::StopsRing(3));
        assert_eq!(classify(18, 1, 0), Message::StopsRing(1));
        assert_eq!(classify(18, 1, 1), Message::Other);
        assert_eq!(classify(5, 0, 0), Message::Table);
        assert_eq!(classify(19, 0, 0), Message::Announcement);
        assert_eq!(classify(2, 0, 0), Message::Other);
    }
}
