//! A port and the pool that holds its rings.

use haul_forward::{Burst, Pool, Port};

use crate::support::{Layout, Linked, linked};

#[test]
fn virtio_port_refuses_a_pool_that_its_rings_are_not_in() {
    for layout in [Layout::Mergeable, Layout::Packed] {
        let Linked { host: _host, host_pool: _others, mut guest, pool, folder: _folder } =
            linked(layout);
        drop(pool);
        let mut other = Pool::new(64).unwrap();
        let call = std::panic::AssertUnwindSafe(|| {
            guest.rx_burst(&mut other, &mut Burst::new());
        });
        let panic = std::panic::catch_unwind(call).unwrap_err();
        let message = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(message.contains("one pool"), "{layout:?}: {message}");
        assert_eq!(other.available(), other.size(), "{layout:?}");
    }
}

#[test]
fn virtio_port_may_be_dropped_after_its_pool() {
    for layout in [Layout::Mergeable, Layout::Packed] {
        let Linked { mut host, mut host_pool, guest, pool, folder: _folder } = linked(layout);
        drop(pool);
        drop(guest);
        host.service(&mut host_pool).unwrap();
    }
}
