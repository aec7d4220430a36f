//! The requests that the crate `vhost` has parsed, as calls of a device.

use std::fs::File;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandler};

use super::backend::{AreaAt, Backend, Refusal, RequestResult};
use haul_peer::descriptor::keep_received;
use haul_peer::guest::{Described, REGIONS_MAX};

/// The device of a conversation.
pub(super) struct Handler<B>(pub(super) Arc<B>);

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
