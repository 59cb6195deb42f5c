//! The first request: which version and abilities kernel and server have in common.

use linux::errno;

use crate::raw::{MAJOR, MINOR, MINOR_MIN, Request, WRITE_BYTES_MAX, ability};
use crate::reply::{Errno, Reply};

/// Requests that the kernel sends without waiting for replies, above all those for reading ahead.
const BACKGROUND_MAX: u16 = 64;
/// From how many on it sees the device as congested.
const CONGESTED: u16 = 48;
/// Pages in one request: those of the longest reply.
const PAGES_MAX: u16 = 256;

/// The negotiated abilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) abilities: u64,
}

/// The abilities wanted for a tree.
pub(crate) fn wanted(is_live: bool, has_xattrs: bool) -> u64 {
    let mut wanted = ability::ASYNC_READ
        | ability::EXPORT_SUPPORT
        | ability::DO_READDIRPLUS
        | ability::ASYNC_DIO
        | ability::PARALLEL_DIROPS
        | ability::MAX_PAGES;
    wanted |= if is_live {
        ability::AUTO_INVAL_DATA
    } else {
        ability::NO_OPEN_SUPPORT | ability::NO_OPENDIR_SUPPORT | ability::CACHE_SYMLINKS
    };
    if has_xattrs {
        wanted |= ability::POSIX_ACL;
    }
    wanted
}

/// Answers `INIT`. Returns nothing if the kernel is to ask again, for an older major version.
pub(crate) fn answer(
    request: &Request<'_>,
    wanted: u64,
    reply: &mut Reply,
) -> Result<Option<Agreed>, Errno> {
    let mut body = request.body;
    let fields = (|| Some((body.u32()?, body.u32()?, body.u32()?, body.u32()?)))();
    let (major, minor, read_ahead, flags) = fields.ok_or(Errno(errno::EINVAL))?;
    if major < MAJOR || (major == MAJOR && minor < MINOR_MIN) {
        return Err(Errno(errno::EOPNOTSUPP));
    }
    let mut offered = u64::from(flags);
    if offered & ability::INIT_EXT != 0 {
        offered |= u64::from(body.u32().unwrap_or(0)) << 32;
    }
    let agreed = offered & wanted;
    let [low, high] = [agreed, agreed >> 32].map(tree::low_u32);
    let extended = tree::low_u32(offered & ability::INIT_EXT);
    reply.u32(MAJOR);
    reply.u32(MINOR.min(minor));
    reply.u32(read_ahead);
    reply.u32(low | extended);
    reply.u16(BACKGROUND_MAX);
    reply.u16(CONGESTED);
    reply.u32(WRITE_BYTES_MAX);
    reply.u32(1); // granularity of times, in nanoseconds
    reply.u16(PAGES_MAX);
    reply.u16(0);
    reply.u32(high);
    reply.zeros(28);
    // A newer kernel asks again, and then for this version.
    Ok((major == MAJOR).then_some(Agreed { abilities: agreed }))
}
