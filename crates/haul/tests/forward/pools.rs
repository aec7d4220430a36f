//! A port and the pool that its rings lie in.

use haul::forward::{Burst, Link, Pool, Port, Virtio};

use crate::support::{Layout, folder, socket, vhost, virtio, wait};

/// A guest's port with its pool, linked to a host's.
fn linked(layout: Layout, act: impl FnOnce(Virtio, Pool, &mut dyn FnMut())) {
    let folder = folder();
    let path = socket(&folder);
    let mut host = vhost("host", &path);
    let mut guest = virtio("guest", &path, layout);
    let (mut pool, mut host_pool) = (Pool::new(2048).unwrap(), Pool::new(2048).unwrap());
    wait("the link", || {
        guest.service(&mut pool).unwrap();
        host.service(&mut host_pool).unwrap();
        guest.link() == Link::Up
    });
    act(guest, pool, &mut || host.service(&mut host_pool).unwrap());
}

#[test]
fn virtio_port_refuses_a_pool_that_its_rings_are_not_in() {
    for layout in [Layout::Mergeable, Layout::Packed] {
        linked(layout, |mut guest, pool, _| {
            drop(pool);
            let mut other = Pool::new(64).unwrap();
            let call = std::panic::AssertUnwindSafe(|| {
                guest.rx_burst(&mut other, &mut Burst::new());
            });
            let panic = std::panic::catch_unwind(call).unwrap_err();
            let message = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(message.contains("one pool"), "{layout:?}: {message}");
            assert_eq!(other.available(), other.size(), "{layout:?}");
        });
    }
}

#[test]
fn virtio_port_may_be_dropped_after_its_pool() {
    for layout in [Layout::Mergeable, Layout::Packed] {
        linked(layout, |guest, pool, serve_host| {
            drop(pool);
            drop(guest);
            serve_host();
        });
    }
}
