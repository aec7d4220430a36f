//! The NICs. Numbers come from DPDK's sources at releases 22.11, 25.03, 25.07 and 26.07, unless
//! another source is named. Paths omit `drivers/net/`, and `drivers/net/intel/` from 25.03 on. The
//! speed of a line is the largest in the driver's `speed_capa`, or in its link update.

use std::str::FromStr;

use super::rules::{
    Choice, Completion, CompletionDoorbells, Fetch, Inline, Mode, Nic, RxDoorbell, Thresholds,
    TxDescriptors, TxDoorbell, WriteBack, listed,
};
use super::version::Version;
use crate::pcie::error::PcieError;

const FIRST: Version = Version::FIRST;
const V25_07: Version = Version { year: 25, month: 7 };

/// `*_RXQ_REARM_THRESH` of ixgbe, i40e and iavf; `CI_VPMD_RX_REARM_THRESH` from 25.07 on.
const REARM_32: RxDoorbell = RxDoorbell::Batch(&[(FIRST, 32), (V25_07, 64)]);
/// `ICE_RXQ_REARM_THRESH` and `IDPF_RXQ_REARM_THRESH`; `CI_VPMD_RX_REARM_THRESH` from 25.07 on.
const REARM_64: RxDoorbell = RxDoorbell::Batch(&[(FIRST, 64)]);

/// `*_TX_MAX_BURST`: the simple path splits a burst into pieces of this size.
const SIMPLE: TxDoorbell = TxDoorbell::Chunk(32);

/// A cache line of descriptors. This is an assumption, because no source gives the number for
/// these devices, and hosts transfer whole lines.
const fn line_of(bytes: u32) -> Fetch {
    Fetch {
        descriptors: 64 / bytes,
        source: "assumed: a cache line of 64 B, because no source has the number",
    }
}

/// One descriptor is written back for each received one.
const fn written_back(bytes: u32) -> Completion {
    Completion { bytes, every: WriteBack::Each, together: 1 }
}

/// One descriptor is written back for as many descriptors as the report-status threshold says.
const REPORTED: Completion = Completion { bytes: 16, every: WriteBack::ReportStatus, together: 1 };

/// `RTE_*_DEFAULT_RX_FREE_THRESH` and `*_TX_RS_THRESH` are 32 in all of Intel's drivers except
/// e1000e.
const INTEL: Thresholds = Thresholds { rx_free: 32, tx_rs: 32 };

const RX_16_BYTE: Choice = Choice {
    name: "rx-16-byte",
    about: "receive descriptors of 16 B: DPDK 25.07 or later, built with \
            RTE_NET_INTEL_USE_16BYTE_DESC",
    apply: |nic| {
        nic.rx_descriptor_bytes = 16;
        nic.rx_fetch = line_of(16);
        nic.rx_completion = written_back(16);
    },
    is_device: false,
};

const IXGBE: Nic = Nic {
    name: "ixgbe",
    devices: "82599, X520, X540, X550",
    line_gigabits: Some(10),
    rx_descriptor_bytes: 16,
    rx_fetch: Fetch { descriptors: 1, source: "82599 datasheet 7.1.7, as pcie-bench reads it" },
    rx_completion: written_back(16),
    modes: &[
        (Mode::Scalar, RxDoorbell::Above, TxDoorbell::Burst),
        (Mode::Bulk, RxDoorbell::Threshold, SIMPLE),
        (Mode::Vector, REARM_32, TxDoorbell::ReportStatus),
    ],
    tx_descriptors: TxDescriptors::Ring { bytes: 16 },
    tx_fetch: Fetch { descriptors: 40, source: "82599 datasheet 7.2.3.4, as pcie-bench reads it" },
    tx_completion: REPORTED,
    doorbell_bytes: 4,
    completion_doorbells: None,
    inline: None,
    thresholds: INTEL,
    choices: &[],
    source: "DPDK ixgbe/ixgbe_rxtx.c, ixgbe_rxtx.h, ixgbe_rxtx_vec_*.c",
    remarks: "",
};

const I40E: Nic = Nic {
    name: "i40e",
    devices: "X710, XL710, XXV710, X722",
    line_gigabits: Some(40),
    rx_descriptor_bytes: 32,
    rx_fetch: line_of(32),
    rx_completion: written_back(32),
    tx_fetch: line_of(16),
    choices: &[Choice {
        about: "receive descriptors of 16 B: built with RTE_NET_INTEL_USE_16BYTE_DESC, before \
                25.07 with RTE_LIBRTE_I40E_16BYTE_RX_DESC",
        ..RX_16_BYTE
    }],
    source: "DPDK i40e/i40e_rxtx.c, i40e_rxtx.h, i40e_rxtx_vec_*.c",
    remarks: "write-backs that the device joins under load are counted one by one",
    ..IXGBE
};

const ICE: Nic = Nic {
    name: "ice",
    devices: "E810, E822, E830",
    // The E830; the E810 has 100 Gb/s, the E822 less.
    line_gigabits: Some(200),
    modes: &[
        (Mode::Scalar, RxDoorbell::Above, TxDoorbell::Burst),
        (Mode::Bulk, RxDoorbell::Threshold, SIMPLE),
        (Mode::Vector, REARM_64, TxDoorbell::ReportStatus),
    ],
    source: "DPDK ice/ice_rxtx.c, ice_rxtx.h, ice_rxtx_vec_*.c",
    choices: &[RX_16_BYTE],
    ..I40E
};

const IAVF: Nic = Nic {
    name: "iavf",
    devices: "virtual functions of X710, E810 and later",
    // The speed of the port whose functions these devices are.
    line_gigabits: Some(200),
    modes: &[
        (Mode::Scalar, RxDoorbell::Above, TxDoorbell::Burst),
        (Mode::Bulk, RxDoorbell::Threshold, TxDoorbell::Burst),
        (Mode::Vector, REARM_32, TxDoorbell::ReportStatus),
    ],
    choices: &[],
    source: "DPDK iavf/iavf_rxtx.c, iavf_rxtx.h, iavf_rxtx_vec_*.c",
    remarks: "with WB_ON_ITR write-backs are joined for up to 2 us; they are counted one by one",
    ..I40E
};

const IDPF: Nic = Nic {
    name: "idpf",
    devices: "E2000, in its single-queue mode (rx_single=1,tx_single=1)",
    line_gigabits: Some(200),
    modes: &[
        (Mode::Scalar, RxDoorbell::Above, TxDoorbell::Burst),
        (Mode::Vector, REARM_64, TxDoorbell::ReportStatus),
    ],
    choices: &[],
    source: "DPDK idpf/idpf_rxtx.c, idpf_rxtx.h, idpf_rxtx_vec_avx512.c; \
             common/idpf/base/virtchnl2_lan_desc.h, idpf_lan_txrx.h",
    remarks: "the split-queue mode, which is its default, is not modelled",
    ..I40E
};

const IGB: Nic = Nic {
    name: "igb",
    devices: "82575, 82580, I350, I210, I211 (the 82576 with option 82576)",
    line_gigabits: Some(1),
    rx_descriptor_bytes: 16,
    rx_fetch: line_of(16),
    // IGB_DEFAULT_RX_WTHRESH and IGB_DEFAULT_TX_WTHRESH.
    rx_completion: Completion { bytes: 16, every: WriteBack::Each, together: 4 },
    modes: &[(Mode::Scalar, RxDoorbell::Above, TxDoorbell::Burst)],
    tx_completion: Completion { bytes: 16, every: WriteBack::Packet, together: 16 },
    choices: &[Choice {
        name: "82576",
        about: "the 82576, whose write-back thresholds are 1",
        apply: |nic| {
            nic.rx_completion.together = 1;
            nic.tx_completion.together = 1;
        },
        is_device: true,
    }],
    source: "DPDK e1000/igb_rxtx.c, igb_ethdev.c",
    remarks: "a write-back that waits for its threshold may be flushed early by the device's timer",
    ..I40E
};

const E1000E: Nic = Nic {
    name: "e1000e",
    devices: "82571 to 82574, 82583, I217 to I219 (DPDK's em)",
    line_gigabits: Some(1),
    rx_completion: written_back(16),
    tx_completion: REPORTED,
    // em_ethdev.c does not set default_rxconf, so the threshold is 0: a doorbell follows each poll
    // that returned a packet.
    thresholds: Thresholds { rx_free: 0, tx_rs: 32 },
    choices: &[],
    source: "DPDK e1000/em_rxtx.c, em_ethdev.c",
    remarks: "",
    ..IGB
};

/// A completion queue entry. Source: mlx5_prm.h `mlx5_cqe`.
const CQE_BYTES: u32 = 64;

const MLX5: Nic = Nic {
    name: "mlx5",
    devices: "ConnectX-5 and later, BlueField",
    // ConnectX-8: mlx5_link_speed_capa knows up to 800 Gb/s.
    line_gigabits: Some(800),
    // One data segment for each buffer, without a multi-packet receive queue (mprq_en=0, the
    // default).
    rx_descriptor_bytes: 16,
    rx_fetch: line_of(16),
    rx_completion: Completion { bytes: CQE_BYTES, every: WriteBack::Packet, together: 1 },
    modes: &[
        (Mode::Scalar, RxDoorbell::Memory, TxDoorbell::Burst),
        (Mode::Vector, RxDoorbell::Memory, TxDoorbell::Burst),
    ],
    // Enhanced multi-packet send (txq_mpw_en=1, the default): control and Ethernet segments of 16 B
    // each and a data segment of 16 B for each packet, in blocks of 64 B, with at most
    // MLX5_EMPW_MAX_PACKETS packets.
    tx_descriptors: TxDescriptors::Entries {
        head_bytes: 32,
        each_bytes: 16,
        block_bytes: 64,
        packets: 32,
    },
    tx_fetch: line_of(16),
    // MLX5_TX_COMP_THRESH.
    tx_completion: Completion { bytes: CQE_BYTES, every: WriteBack::Packets(32), together: 1 },
    doorbell_bytes: 8,
    completion_doorbells: None,
    inline: None,
    thresholds: Thresholds { rx_free: 0, tx_rs: 32 },
    choices: &[
        Choice {
            name: "inline",
            about: "packets of up to 290 B copied into their entries: txqs_min_inline=0, or 8 \
                    transmit queues and more",
            apply: |nic| {
                // A segment's length of 4 B precedes the data; both are padded to a multiple of 16
                // B.
                let inline = Inline { bytes_max: 290, extra_bytes: 4, align_bytes: 16 };
                nic.inline = Some(inline);
            },
            is_device: false,
        },
        Choice {
            name: "single-send",
            about: "one entry a packet: txq_mpw_en=0, or ConnectX-4",
            apply: |nic| {
                nic.tx_descriptors = TxDescriptors::Entries {
                    head_bytes: 32,
                    each_bytes: 16,
                    block_bytes: 64,
                    packets: 1,
                };
            },
            is_device: false,
        },
        Choice {
            name: "cqe-compressed",
            about: "receive completions compressed to 8 B each (rxq_cqe_comp_en=1, and the device \
                    does it): the least there can be",
            apply: |nic| {
                nic.rx_completion = Completion { bytes: 8, together: 8, ..nic.rx_completion }
            },
            is_device: false,
        },
    ],
    source: "DPDK mlx5/mlx5_defs.h, mlx5_tx.h, common/mlx5/mlx5_prm.h, doc/guides/nics/mlx5.rst",
    remarks: "the device's reads of doorbell records in memory are not counted: no source says \
              when it reads them",
};

const ENA: Nic = Nic {
    name: "ena",
    devices: "Elastic Network Adapter with low-latency queues (LLQ), its default",
    // The speed depends on the instance.
    line_gigabits: None,
    rx_descriptor_bytes: 16,
    rx_fetch: line_of(16),
    rx_completion: Completion { bytes: 16, every: WriteBack::Each, together: 1 },
    modes: &[(Mode::Scalar, RxDoorbell::AtLeast, TxDoorbell::Burst)],
    tx_descriptors: TxDescriptors::Pushed {
        entry_bytes: 128,
        each_bytes: 16,
        before_header: 2,
        between_doorbells: None,
    },
    tx_fetch: line_of(16),
    tx_completion: Completion { bytes: 8, every: WriteBack::Packet, together: 1 },
    doorbell_bytes: 4,
    completion_doorbells: None,
    inline: None,
    // An eighth of a ring of 1,024, ENA_DEFAULT_RING_SIZE over ENA_REFILL_THRESH_DIVIDER.
    thresholds: Thresholds { rx_free: 128, tx_rs: 1 },
    choices: &[
        Choice {
            name: "large-llq",
            about: "entries of 256 B: large_llq_hdr=1, from 24.11 on llq_policy=3; from 24.03 on also \
                    where the device recommends them",
            apply: |nic| {
                if let TxDescriptors::Pushed { entry_bytes, .. } = &mut nic.tx_descriptors {
                    *entry_bytes = 256;
                }
            },
            is_device: false,
        },
        Choice {
            name: "burst-limit",
            // ena_com_is_doorbell_needed. The number comes from the device, and no source gives
            // it. A c7g.large accepted two entries of 256 B.
            about: "a device that says max_tx_burst_size, 512 B here: a doorbell is written before \
                    more entries are pushed than that",
            apply: |nic| {
                if let TxDescriptors::Pushed { between_doorbells, .. } = &mut nic.tx_descriptors {
                    *between_doorbells = Some(512);
                }
            },
            is_device: true,
        },
    ],
    source: "DPDK ena/ena_ethdev.c, ena_ethdev.h, base/ena_com.c, base/ena_eth_com.c, \
             ena_eth_com.h, base/ena_defs/ena_eth_io_defs.h",
    remarks: "a meta descriptor is counted where each packet has a context; the completion head \
              that releases before 23.11 write, at most once in a quarter of a ring, is not",
};

/// `RTE_BNXT_MAX_RX_BURST` and `RTE_BNXT_MAX_TX_BURST`. They are also the thresholds of rings of
/// 256 descriptors and more, whatever thresholds a program sets.
const BNXT_BURST: u32 = 64;

const BNXT: Nic = Nic {
    name: "bnxt",
    devices: "BCM575xx, BCM576xx (BCM573xx and BCM574xx with option 574xx)",
    // The BCM576xx; the BCM575xx has 200 Gb/s.
    line_gigabits: Some(400),
    // struct rx_prod_pkt_bd; rx_pkt_cmpl and rx_pkt_cmpl_hi, 16 B each; tx_bd_short; tx_cmpl.
    rx_descriptor_bytes: 16,
    rx_fetch: line_of(16),
    rx_completion: Completion { bytes: 32, every: WriteBack::Packet, together: 1 },
    modes: &[
        (Mode::Scalar, RxDoorbell::Poll, TxDoorbell::Burst),
        (Mode::Vector, RxDoorbell::Fours(BNXT_BURST), TxDoorbell::Chunk(BNXT_BURST)),
    ],
    tx_descriptors: TxDescriptors::Ring { bytes: 16 },
    tx_fetch: line_of(16),
    tx_completion: Completion { bytes: 16, every: WriteBack::Doorbell, together: 1 },
    doorbell_bytes: 8,
    completion_doorbells: Some(CompletionDoorbells {
        rx_packets: BNXT_BURST,
        tx_descriptors: BNXT_BURST,
    }),
    inline: None,
    thresholds: Thresholds { rx_free: BNXT_BURST, tx_rs: 32 },
    choices: &[
        Choice {
            name: "574xx",
            about: "BCM573xx or BCM574xx, whose doorbells have 4 B",
            apply: |nic| nic.doorbell_bytes = 4,
            is_device: true,
        },
        Choice {
            name: "cqe-compressed",
            about: "receive completions of 16 B: cqe-mode=1, from 24.03 on, BCM575xx alone",
            apply: |nic| nic.rx_completion.bytes = 16,
            is_device: false,
        },
    ],
    source: "DPDK bnxt/bnxt_rxr.c, bnxt_txr.c, bnxt_rxtx_vec_avx2.c, bnxt_rxtx_vec_common.h, \
             bnxt_rxq.c, bnxt_txq.c, bnxt_ring.h, hsi_struct_def_dpdk.h",
    remarks: "doorbells that end at the end of a ring are not counted apart; rings of 256 \
              descriptors and more; no aggregation ring (jumbo frames, LRO); at 400 Gb/s the \
              receive threshold is larger",
};

/// All NICs. virtio and vmxnet3 are left out, because their packets do not cross a link.
pub static NICS: [Nic; 10] = [IXGBE, I40E, ICE, IAVF, IDPF, IGB, E1000E, MLX5, BNXT, ENA];

impl FromStr for &'static Nic {
    type Err = PcieError;

    fn from_str(text: &str) -> Result<Self, PcieError> {
        NICS.iter().find(|nic| nic.name == text).ok_or_else(|| PcieError::Nic {
            name: text.to_owned(),
            known: listed(NICS.iter().map(|nic| nic.name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(name: &str) -> &'static Nic {
        name.parse().unwrap()
    }

    type Row = (&'static str, u32, u32, u32, u32, [u32; 3]);

    /// NIC, sizes of receive and transmit descriptors, thresholds, and packets for each doorbell in
    /// vector mode at 22.11, 25.03 and 25.07 (0 if there is no such rule).
    const TABLE: [Row; 10] = [
        ("ixgbe", 16, 16, 32, 32, [32, 32, 64]),
        ("i40e", 32, 16, 32, 32, [32, 32, 64]),
        ("ice", 32, 16, 32, 32, [64, 64, 64]),
        ("iavf", 32, 16, 32, 32, [32, 32, 64]),
        ("idpf", 32, 16, 32, 32, [64, 64, 64]),
        ("igb", 16, 16, 32, 32, [0, 0, 0]),
        ("e1000e", 16, 16, 0, 32, [0, 0, 0]),
        ("mlx5", 16, 64, 0, 32, [0, 0, 0]),
        ("bnxt", 16, 16, 64, 32, [0, 0, 0]),
        ("ena", 16, 128, 128, 1, [0, 0, 0]),
    ];

    #[test]
    fn nics_have_numbers_of_their_drivers() {
        assert_eq!(TABLE.len(), NICS.len());
        for (name, rx, tx, free, rs, batches) in TABLE {
            let nic = nic(name);
            assert_eq!((nic.rx_descriptor_bytes, nic.tx_descriptor_bytes()), (rx, tx), "{name}");
            assert_eq!((nic.thresholds.rx_free, nic.thresholds.tx_rs), (free, rs), "{name}");
            let rule = nic.doorbells(Mode::Vector).0;
            let releases = ["dpdk-22.11", "dpdk-25.03", "dpdk-25.07"];
            let found = releases.map(|text| rule.batch(text.parse().unwrap()).unwrap_or(0));
            assert_eq!(found, batches, "{name}");
            assert!(!nic.source.is_empty() && !nic.modes.is_empty(), "{name}");
        }
    }

    #[test]
    fn options_change_their_numbers() {
        let i40e = nic("i40e").with("rx-16-byte").unwrap();
        assert_eq!((i40e.rx_descriptor_bytes, i40e.rx_completion.bytes), (16, 16));
        assert_eq!(nic("igb").with("82576").unwrap().tx_completion.together, 1);
        assert_eq!(nic("mlx5").with("cqe-compressed").unwrap().rx_completion.bytes, 8);
        for nic in &NICS {
            for choice in nic.choices {
                assert!(nic.with(choice.name).is_ok() && !choice.about.is_empty());
            }
        }
    }

    #[test]
    fn unknown_names_are_rejected_with_known_ones() {
        let message = "e810".parse::<&Nic>().unwrap_err().to_string();
        assert!(message.contains("ice") && message.contains("ena"), "{message}");
        let message = nic("igb").mode("vector").unwrap_err().to_string();
        assert!(message.contains("scalar"), "{message}");
        let message = nic("iavf").with("rx-16-byte").unwrap_err().to_string();
        assert!(message.contains("leave the option out"), "{message}");
        assert_eq!(nic("ice").usual_mode(), Mode::Vector);
    }
}
