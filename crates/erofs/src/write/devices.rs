//! Further devices: images of the source, whose data stays where it is. One can be in the same file
//! as the image, which then lies behind it.

use std::fmt;
use std::sync::Arc;

use tree::{DevicePlace, Error, ReadAt, Result, StoreId, high_u32, low_u32};

use super::block::{BLOCK_BYTES, BLOCK_LOG2};
use crate::superblock::{DEVICE_SLOT_BYTES, TAG_BYTES};

/// Where the first device begins in the common address space. The image must end before it; whole
/// files are named with 32 bits of blocks, and so as far as 16 TiB.
const DEVICES_AT: u64 = 1 << 40;
/// Where the last device ends at most: bits of an address in a table.
const DEVICES_END: u64 = 1 << 59;

/// A device of the source that becomes a further device of an image.
#[derive(Clone)]
pub struct DataDevice {
    store: StoreId,
    number: u64,
    /// Bytes in whole blocks: Linux reads no others of a device.
    len: u64,
    tag: Vec<u8>,
    pub(crate) bytes: Arc<dyn ReadAt>,
    /// Whether it is the beginning of the file that the image is written to.
    is_beneath: bool,
}

impl DataDevice {
    /// The device that a store gives this number, its bytes, and a tag for the device table, which
    /// Linux does not compare with anything.
    ///
    /// # Errors
    /// The size of the device cannot be read; the tag is longer than 64 bytes.
    pub fn new(
        (store, number): (StoreId, u64),
        bytes: Arc<dyn ReadAt>,
        tag: &[u8],
    ) -> Result<DataDevice> {
        if tag.len() > TAG_BYTES {
            return Err(Error::InvalidInput(
                "a device of EROFS has a tag of at most 64 bytes",
            ));
        }
        let size = bytes.size()?;
        Ok(DataDevice {
            store,
            number,
            len: size - size % BLOCK_BYTES as u64,
            tag: tag.to_vec(),
            bytes,
            is_beneath: false,
        })
    }

    /// The same for the first `len` bytes of the output, which hold an image that leaves bytes 1024
    /// to 4095 to the superblock of this one and to the tag. All else goes behind it.
    #[must_use]
    pub fn beneath(self, len: u64) -> DataDevice {
        DataDevice {
            len: len.next_multiple_of(BLOCK_BYTES as u64),
            is_beneath: true,
            ..self
        }
    }
}

impl fmt::Debug for DataDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataDevice")
            .field("store", &self.store)
            .field("number", &self.number)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The image in the same file.
fn beneath(devices: &[DataDevice]) -> Option<&DataDevice> {
    devices.iter().find(|device| device.is_beneath)
}

/// The tag of the image in the same file.
pub(crate) fn tag_beneath(devices: &[DataDevice]) -> Option<&[u8]> {
    beneath(devices).map(|device| &device.tag[..])
}

/// Where everything but the superblock begins.
pub(crate) fn begin(devices: &[DataDevice]) -> u64 {
    beneath(devices).map_or(BLOCK_BYTES as u64, |device| device.len)
}

/// Whether the image has a device table.
pub(crate) fn has_further(devices: &[DataDevice]) -> bool {
    devices.iter().any(|device| !device.is_beneath)
}

/// The devices, each with its place in the common address space.
fn placed(devices: &[DataDevice]) -> impl Iterator<Item = (u64, &DataDevice)> {
    devices.iter().scan(DEVICES_AT, |next, device| {
        if device.is_beneath {
            return Some((0, device));
        }
        let at = *next;
        // With a gap, so that no file seems to go on there.
        *next = at.saturating_add(device.len + BLOCK_BYTES as u64);
        Some((at, device))
    })
}

/// The device of stored bytes, and where they are in the common address space; `None` if they are
/// on none, or in its last, incomplete block.
pub(crate) fn device_of<'a>(
    devices: &'a [DataDevice],
    place: &DevicePlace,
) -> Option<(&'a DataDevice, u64)> {
    let is_of = |device: &DataDevice| (device.store, device.number) == (place.store, place.device);
    let (at, device) = placed(devices).find(|(_, device)| is_of(device))?;
    let end = place.at.checked_add(place.len)?;
    (end <= device.len).then_some((device, at + place.at))
}

/// The bytes of a device at this place in the common address space, and where in them that is.
pub(crate) fn device_at(devices: &[DataDevice], at: u64) -> Option<(&DataDevice, u64)> {
    placed(devices)
        .find(|(begin, device)| (*begin..*begin + device.len).contains(&at))
        .map(|(begin, device)| (device, at - begin))
}

/// The device table, which must be near the beginning of the image.
pub(crate) fn device_table(devices: &[DataDevice]) -> Result<Vec<u8>> {
    let mut table = Vec::new();
    for (at, device) in placed(devices).filter(|(_, device)| !device.is_beneath) {
        if at + device.len > DEVICES_END {
            return Err(Error::Limit("further devices of more than 512 PiB"));
        }
        let (blocks, begin) = (device.len >> BLOCK_LOG2, at >> BLOCK_LOG2);
        let end = table.len() + DEVICE_SLOT_BYTES;
        table.extend(&device.tag);
        table.resize(end - DEVICE_SLOT_BYTES + TAG_BYTES, 0);
        table.extend(low_u32(blocks).to_le_bytes());
        table.extend(low_u32(begin).to_le_bytes());
        table.extend((high_u32(blocks) as u16).to_le_bytes());
        table.extend((high_u32(begin) as u16).to_le_bytes());
        table.resize(end, 0);
    }
    Ok(table)
}

/// Checks that an image of these bytes ends before its further devices begin.
pub(crate) fn check_end(devices: &[DataDevice], bytes: u64) -> Result<()> {
    if has_further(devices) && bytes > DEVICES_AT {
        return Err(Error::Limit("more than 1 TiB beside further devices"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_of_a_device_hold_data() {
        let store = StoreId::new();
        let of = || DataDevice::new((store, 1), Arc::new(vec![0; 10_000]), b"tag").unwrap();
        let place = |at, len| DevicePlace {
            store,
            device: 1,
            at,
            len,
        };
        let found = |device, at, len| {
            let devices = [device];
            device_of(&devices, &place(at, len)).map(|(_, at)| at)
        };
        assert_eq!(found(of(), 4097, 4095), Some(DEVICES_AT + 4097));
        assert_eq!(found(of(), 4097, 4096), None);
        assert_eq!(found(of(), 8192, 1), None);
        // In the same file, the rest of the last block comes behind it.
        assert_eq!(found(of().beneath(10_000), 8192, 1000), Some(8192));
        assert_eq!(begin(&[of().beneath(10_000)]), 12_288);
        assert_eq!(begin(&[of()]), 4096);
    }
}
