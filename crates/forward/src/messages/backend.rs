//! The back end's side: a device that answers a front end, and the conversation with it.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandler};

use haul_peer::descriptor::{keep, keep_received};
use haul_peer::guest::{Described, REGIONS_MAX};
use haul_peer::{closer, received, socket};

/// A request that cannot be fulfilled and ends the conversation. Holds the reason, for an operator.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

/// Refuses a request of the front end.
pub(crate) fn refuse<T>(why: impl Into<String>) -> RequestResult<T> {
    Err(Refusal(why.into()))
}

/// The result of a request.
pub(crate) type RequestResult<T = ()> = std::result::Result<T, Refusal>;

/// The inflight area, from which a back end's successor recovers the locations of its rings: the
/// message's "inflight description".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaAt {
    pub(crate) bytes: u64,
    /// Offset of the area in its file.
    pub(crate) offset: u64,
    pub(crate) rings: u16,
    /// The number of descriptors in the largest ring.
    pub(crate) size: u16,
}

/// A device, as its front end uses it. Rings are counted from 0: even rings carry packets to the
/// guest, odd rings from the guest. All values come from the peer and are untrusted.
pub(crate) trait Backend: Send + Sync {
    fn features(&self) -> u64;
    fn set_features(&self, features: u64) -> RequestResult;
    /// The number of queue pairs.
    fn queue_pairs(&self) -> u64;
    fn set_memory(&self, regions: Vec<(Described, OwnedFd)>) -> RequestResult;
    fn add_memory(&self, region: Described, file: OwnedFd) -> RequestResult;
    fn remove_memory(&self, region: Described) -> RequestResult;
    fn set_size(&self, ring: u32, size: u32) -> RequestResult;
    /// Addresses of the descriptors, the available and the used ring in the peer's process.
    fn set_addresses(&self, ring: u32, areas: [u64; 3]) -> RequestResult;
    fn set_base(&self, ring: u32, base: u32) -> RequestResult;
    /// Stops the ring, and returns its progress.
    fn stop_ring(&self, ring: u32) -> RequestResult<u32>;
    /// Starts the ring. The kick event is not used, because rings are polled.
    fn start_ring(&self, ring: u32) -> RequestResult;
    fn set_call(&self, ring: u32, event: Option<OwnedFd>) -> RequestResult;
    fn set_enabled(&self, ring: u32, is_enabled: bool) -> RequestResult;
    /// Creates an area for `rings` rings of this size, and uses it.
    fn make_area(&self, rings: u16, size: u16) -> RequestResult<(AreaAt, OwnedFd)>;
    /// Uses an area that the front end has kept.
    fn set_area(&self, at: AreaAt, file: OwnedFd) -> RequestResult;
    /// Resets the device as if the front end had disconnected.
    fn reset(&self);
}

/// The conversation with a front end, message by message.
///
/// The crate that parses the messages may close the descriptors in them, and a close may wait for
/// the process that sent them. Therefore each message is received here first, as a whole, and the
/// crate reads it from an internal socket, so that the crate never closes the last copy of a
/// descriptor. Answers take the same path back.
pub(crate) struct Conversation<B: Backend> {
    requests: BackendReqHandler<Handler<B>>,
    /// The other end of the socket that the crate reads.
    inner: UnixStream,
    socket: Option<UnixStream>,
    backend: Arc<B>,
}

/// A received message. A separate thread closes its descriptors.
struct Message {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Drop for Message {
    fn drop(&mut self) {
        received::let_go(std::mem::take(&mut self.files));
    }
}

/// SET_VRING_ENABLE: ring, state.
const ENABLE: u32 = 18;
const ENABLE_BYTES: usize = HEADER_BYTES + 8;
/// Request, flags, number of bytes that follow.
const HEADER_BYTES: usize = 12;
/// The longest body of a message that the crate accepts, and the most descriptors per message.
const BODY_BYTES_MAX: usize = 4096;
const FILES_MAX: usize = 32;
/// Flags: the protocol's version in the lower two bits, then whether the message is a reply, then
/// whether it requests one.
const VERSION: u32 = 1;
const IS_REPLY: u32 = 1 << 2;
const WANTS_REPLY: u32 = 1 << 3;

/// Why a conversation ends, for an operator; `None` if the other side disconnected.
type EndReason = Option<String>;

impl Message {
    /// Waits for the next message.
    fn receive(socket: &UnixStream) -> std::result::Result<Self, EndReason> {
        let mut message = Self { bytes: Vec::new(), files: Vec::new() };
        message.fill(socket, HEADER_BYTES)?;
        let [_, _, length] = words(&message.bytes);
        if length as usize > BODY_BYTES_MAX {
            return Err(Some(format!("it sent a message of {length} B, above 4,096 B")));
        }
        message.fill(socket, HEADER_BYTES + length as usize)?;
        Ok(message)
    }

    /// Receives until the message has `bytes` bytes.
    fn fill(&mut self, socket: &UnixStream, bytes: usize) -> std::result::Result<(), EndReason> {
        let mut filled = self.bytes.len();
        self.bytes.resize(bytes, 0);
        while filled < bytes {
            let flags = RecvFlags::empty();
            match socket::take(socket.as_fd(), &mut self.bytes[filled..], flags) {
                Err(Errno::INTR) => {}
                Ok(taken) if taken.length > 0 => {
                    filled += taken.length;
                    self.files.extend(taken.files);
                }
                Ok(_) if filled > 0 => {
                    return Err(Some("it disconnected in the middle of a message".to_owned()));
                }
                // A stopped port shuts its own socket down, or the other side disconnects.
                Ok(_) | Err(_) => return Err(None),
            }
            if self.files.len() > FILES_MAX {
                return Err(Some("it sent more than 32 descriptors with a message".to_owned()));
            }
        }
        Ok(())
    }

    /// Whether the message enables or disables a ring. QEMU enables the rings of a network device
    /// before it sets any feature, and the crate rejects that.
    fn is_enabling(&self) -> bool {
        let [code, flags, _] = words(&self.bytes);
        code == ENABLE && flags & !WANTS_REPLY == VERSION && self.bytes.len() == ENABLE_BYTES
    }
}

impl<B: Backend> Conversation<B> {
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new(socket: UnixStream, backend: Arc<B>) -> std::io::Result<Self> {
        let (inner, outer) = UnixStream::pair()?;
        let [inner, outer] = [keep(inner.into())?, keep(outer.into())?].map(UnixStream::from);
        let handler = Arc::new(Handler(backend.clone()));
        let requests = BackendReqHandler::from_stream(outer, handler);
        Ok(Self { requests, inner, socket: Some(socket), backend })
    }

    /// Waits for a message and executes it. Returns `Ok(false)` if the front end has disconnected
    /// properly.
    ///
    /// # Errors
    /// The fault of the message.
    pub(crate) fn next(&mut self) -> std::result::Result<bool, String> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let message = match Message::receive(socket) {
            Ok(message) => message,
            Err(reason) => return reason.map_or(Ok(false), Err),
        };
        if message.is_enabling() {
            return self.enable(socket, &message);
        }
        let files: Vec<_> = message.files.iter().map(AsFd::as_fd).collect();
        if send(&self.inner, &message.bytes, &files).is_err() {
            return Ok(false);
        }
        let done = self.requests.handle_request();
        self.answer(socket);
        match done {
            Ok(()) => Ok(true),
            Err(Error::Disconnected | Error::SocketBroken(_)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Forwards the crate's answers to the front end.
    fn answer(&self, socket: &UnixStream) {
        let mut bytes = [0; HEADER_BYTES + BODY_BYTES_MAX];
        while let Ok(taken) = socket::take(self.inner.as_fd(), &mut bytes, RecvFlags::DONTWAIT)
            && taken.length > 0
        {
            let files: Vec<_> = taken.files.iter().map(AsFd::as_fd).collect();
            // A disconnected front end needs no answer.
            let _ = send(socket, &bytes[..taken.length], &files);
        }
    }

    fn enable(&self, socket: &UnixStream, message: &Message) -> std::result::Result<bool, String> {
        let [_, flags, _, ring, state] = words(&message.bytes);
        let done = match state {
            0 | 1 => self.backend.set_enabled(ring, state == 1),
            _ => refuse(format!("it set ring {ring} to the state {state}; 0 and 1 are possible")),
        };
        if flags & WANTS_REPLY != 0 {
            let result = u32::from(done.is_err());
            let reply = [ENABLE, VERSION | IS_REPLY, 8, result, 0].map(u32::to_ne_bytes).concat();
            // A disconnected front end needs no reply.
            let _ = send(socket, &reply, &[]);
        }
        done.map(|()| true).map_err(|Refusal(why)| why)
    }
}

impl<B: Backend> Drop for Conversation<B> {
    /// Messages that were not read may hold descriptors.
    fn drop(&mut self) {
        self.socket.take().into_iter().for_each(close);
    }
}

/// Ends a connection, and closes it without waiting for data in flight.
pub(crate) fn close(socket: UnixStream) {
    // The connection may be over already.
    let _ = socket.shutdown(std::net::Shutdown::Both);
    closer::close([OwnedFd::from(socket)]);
}

/// Sends bytes with descriptors.
fn send(
    socket: &UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> std::result::Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// The words of a message, in this machine's byte order, as the protocol defines it.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|index| words.get(index).map_or(0, |word| u32::from_ne_bytes(*word)))
}

struct Handler<B>(Arc<B>);

fn wire<T>(done: RequestResult<T>) -> Result<T> {
    done.map_err(|Refusal(_)| Error::InvalidParam)
}

fn described(region: &VhostUserMemoryRegion) -> Described {
    Described {
        guest: region.guest_phys_addr,
        peer: region.user_addr,
        bytes: region.memory_size,
        offset: region.mmap_offset,
    }
}

/// A descriptor of the peer, to be kept.
fn owned(file: File) -> Result<OwnedFd> {
    keep_received(file.into()).map_err(|reason| Error::ReqHandlerError(reason.into()))
}

/// The answer to requests that this device does not support.
const ABSENT: Error = Error::InvalidOperation("not a feature of this device");

impl<B: Backend> VhostUserBackendReqHandler for Handler<B> {
    fn set_owner(&self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&self) -> Result<()> {
        self.0.reset();
        Ok(())
    }

    fn reset_device(&self) -> Result<()> {
        self.0.reset();
        Ok(())
    }

    fn get_features(&self) -> Result<u64> {
        Ok(self.0.features())
    }

    fn set_features(&self, features: u64) -> Result<()> {
        wire(self.0.set_features(features))
    }

    fn set_mem_table(
        &self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        if regions.len() != files.len() {
            return Err(Error::InvalidParam);
        }
        let described = regions.iter().map(described);
        let files = files.into_iter().map(owned).collect::<Result<Vec<_>>>()?;
        wire(self.0.set_memory(described.zip(files).collect())).map(|()| None)
    }

    fn set_vring_num(&self, index: u32, num: u32) -> Result<()> {
        wire(self.0.set_size(index, num))
    }

    fn set_vring_addr(
        &self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        wire(self.0.set_addresses(index, [descriptor, available, used]))
    }

    fn set_vring_base(&self, index: u32, base: u32) -> Result<()> {
        wire(self.0.set_base(index, base))
    }

    fn get_vring_base(&self, index: u32) -> Result<VhostUserVringState> {
        wire(self.0.stop_ring(index)).map(|base| VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&self, index: u8, _: Option<File>) -> Result<()> {
        wire(self.0.start_ring(index.into()))
    }

    fn set_vring_call(&self, index: u8, event: Option<File>) -> Result<()> {
        wire(self.0.set_call(index.into(), event.map(owned).transpose()?))
    }

    fn set_vring_err(&self, _: u8, _: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&self) -> Result<u64> {
        Ok(self.0.queue_pairs())
    }

    fn set_vring_enable(&self, index: u32, enable: bool) -> Result<()> {
        wire(self.0.set_enabled(index, enable))
    }

    fn get_config(&self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(ABSENT)
    }

    fn set_config(&self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(ABSENT)
    }

    fn set_gpu_socket(&self, _: GpuBackend) -> Result<()> {
        Err(ABSENT)
    }

    fn get_shared_object(&self, _: VhostUserSharedMsg) -> Result<File> {
        Err(ABSENT)
    }

    fn get_inflight_fd(&self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (at, file) = wire(self.0.make_area(wanted.num_queues, wanted.queue_size))?;
        let AreaAt { bytes, offset, rings, size } = at;
        Ok((VhostUserInflight::new(bytes, offset, rings, size), file.into()))
    }

    fn set_inflight_fd(&self, area: &VhostUserInflight, file: File) -> Result<()> {
        let (bytes, offset) = (area.mmap_size, area.mmap_offset);
        let at = AreaAt { bytes, offset, rings: area.num_queues, size: area.queue_size };
        wire(self.0.set_area(at, owned(file)?))
    }

    fn get_max_mem_slots(&self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        wire(self.0.add_memory(described(region), owned(file)?)).map(|()| None)
    }

    fn remove_mem_region(&self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        wire(self.0.remove_memory(described(region)))
    }

    fn set_device_state_fd(
        &self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(ABSENT)
    }

    fn check_device_state(&self) -> Result<()> {
        Err(ABSENT)
    }

    fn get_shmem_config(&self) -> Result<VhostUserShMemConfig> {
        Err(ABSENT)
    }

    fn set_log_base(&self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(ABSENT)
    }
}
