//! Each packet that is given to a port is counted once, independent of the port's peer.

use haul_forward::{Burst, DropReason, Link, Null, Pool, Port};

use crate::support::{Layout, Linked, linked, wait};

#[test]
fn packets_of_ended_session_are_counted_once() {
    for layout in Layout::ALL {
        let Linked { host, host_pool: _others, mut guest, mut pool, folder: _folder } =
            linked(layout);
        let (mut source, mut burst) = (Null::source("in", 64), Burst::new());
        let mut given = 0;
        let mut give = |guest: &mut dyn Port, pool: &mut Pool, burst: &mut Burst| {
            given += source.rx_burst(pool, burst) as u64;
            guest.tx_burst(pool, burst);
            given
        };
        // Packets that the back end has not consumed before it disconnects.
        for _ in 0..3 {
            give(&mut guest, &mut pool, &mut burst);
        }
        assert!(burst.is_empty(), "{layout:?}: the ring has room");
        drop(host);
        wait("the end of the session", || {
            guest.service(&mut pool).unwrap();
            guest.link() == Link::Down
        });
        let given = give(&mut guest, &mut pool, &mut burst);
        assert!(burst.is_empty());
        let tx = &guest.counters().tx;
        let (sent, unlinked) = (tx.packets, tx.drops_for(DropReason::NoLink));
        assert_eq!((sent + unlinked, tx.drops_sum()), (given, unlinked), "{layout:?}: {tx:?}");
        guest.stop(&mut pool);
        assert_eq!(guest.counters().tx.packets, sent, "{layout:?}");
        assert_eq!(guest.counters().tx.drops_sum(), unlinked, "{layout:?}");
        assert_eq!(pool.available(), pool.size(), "{layout:?}");
    }
}
