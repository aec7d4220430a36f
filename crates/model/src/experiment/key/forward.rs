//! Keys of the forwarder.

/// The copier between a switch and its guest.
pub const COPY: &str = "copy";
/// The library that a switch loads in addition, or in place of its own: `preload=FILE` or
/// `lib=DIR`.
pub const LIBRARY: &str = "library";
/// The kind of Open vSwitch's port to the guest, if it is not `dpdkvhostuser`.
pub const OVS_PORT: &str = "ovs_port";
/// Whether the library served packets in place of the switch's own library.
pub const SERVED: &str = "served";
/// The program in the guest.
pub const GUEST: &str = "guest";
/// The layout of the rings between switch and guest.
pub const LAYOUT: &str = "layout";
/// How testpmd as guest holds a packet that is longer than 2,048 B: in `one` buffer, or in
/// `several`.
pub const BUFFERS: &str = "buffers";
/// The number of descriptors in a ring.
pub const RING_SIZE: &str = "ring_size";
/// The negotiated virtio feature bits, in hexadecimal.
pub const FEATURES: &str = "features";
/// The function with which a guest receives.
pub const GUEST_RX: &str = "guest_rx";
/// The function with which a guest sends.
pub const GUEST_TX: &str = "guest_tx";
/// The release of the program in the guest.
pub const GUEST_VERSION: &str = "guest_version";
/// The release of a guest's kernel.
pub const GUEST_KERNEL: &str = "guest_kernel";
/// The accelerator that runs a guest's instructions: kvm or tcg, QEMU's emulator.
pub const ACCELERATOR: &str = "accelerator";
/// The largest width of testpmd's vectors, in bits.
pub const SIMD_BITS: &str = "simd_bits";
/// The port of the forwarder.
pub const PORT: &str = "port";
/// The number of queue pairs in a flow.
pub const QUEUES: &str = "queues";
/// The queue of the port.
pub const QUEUE: &str = "queue";
/// The number of packets that a call moved.
pub const SIZE: &str = "size";
/// The reason why packets were dropped.
pub const REASON: &str = "reason";
/// The stage at which packets were lost.
pub const STAGE: &str = "stage";
/// The components that packets pass through.
pub const FLOW: &str = "flow";
/// The share of the rate at zero loss that is offered, in percent.
pub const LOAD_PERCENT: &str = "load_percent";
/// The quantile.
pub const QUANTILE: &str = "quantile";
