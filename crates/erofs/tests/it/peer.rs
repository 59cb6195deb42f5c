//! Images as erofs-rs reads them: a reader that was written without ours and without Linux's.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;

use erofs_rs::backend::SliceImage;
use erofs_rs::types::Inode;
use erofs_rs::{EroFS, Error};
use testkit::MemoryFs;
use tree::{Device, FileKind, FileSystem, Ino, Time};

type Peer<'a> = EroFS<SliceImage<'a>>;

/// Everything in an image and its further device.
pub(crate) fn as_erofs_rs_reads(image: &[u8], device: Option<&[u8]>) -> Result<MemoryFs, Error> {
    let devices = device.into_iter().map(SliceImage::new).collect();
    let peer = Peer::new_with_devices(SliceImage::new(image), devices)?;
    let mut fs = MemoryFs::new();
    let root = fs.root();
    describe(
        &mut fs,
        root,
        &peer,
        peer.get_inode(peer.super_block().root_inode_id())?,
    )?;
    let mut directories = HashMap::from([(b"/".to_vec(), root)]);
    let mut known = HashMap::new();
    for entry in peer.walk_dir("/")? {
        let entry = entry?;
        let (name, inode) = (entry.dir_entry.file_name(), entry.inode);
        let path = entry.dir_entry.path();
        let above = path.parent().map_or(&b"/"[..], |above| above.as_bytes());
        let dir = directories[above];
        if let Some(&ino) = known.get(&inode.id()) {
            fs.link(dir, name, ino);
            continue;
        }
        let kind = FileKind::from_mode(inode.file_type().as_raw_mode()).unwrap();
        let ino = match kind {
            FileKind::Directory => fs.add_dir(dir, name),
            FileKind::Regular => fs.add_file(dir, name, &content(&peer, inode)?),
            FileKind::Symlink => {
                let target = peer.read_link_inode(inode)?;
                fs.add_symlink(dir, name, target.as_bytes())
            }
            _ => {
                let (major, minor) = inode.device().unwrap_or_default();
                fs.add_special(dir, name, kind, Device { major, minor })
            }
        };
        if kind == FileKind::Directory {
            directories.insert(path.into_vec(), ino);
        } else {
            known.insert(inode.id(), ino);
        }
        describe(&mut fs, ino, &peer, inode)?;
    }
    Ok(fs)
}

fn describe(fs: &mut MemoryFs, ino: Ino, peer: &Peer, inode: Inode) -> Result<(), Error> {
    let metadata = fs.metadata_mut(ino);
    metadata.permissions = (inode.permissions().mode() & 0o7777) as u16;
    (metadata.uid, metadata.gid) = (inode.uid(), inode.gid());
    let (seconds, nanoseconds) = inode.modified_unix();
    metadata.mtime = Time {
        seconds,
        nanoseconds,
    };
    for (name, value) in peer.xattrs_inode(inode)? {
        fs.add_xattr(ino, &name, &value);
    }
    Ok(())
}

fn content(peer: &Peer, inode: Inode) -> Result<Vec<u8>, Error> {
    let file = peer.open_inode_file(inode)?;
    let mut content = vec![0; inode.data_size() as usize];
    let mut at = 0;
    while at < content.len() {
        let read = file.read_at(&mut content[at..], at as u64)?;
        assert!(read > 0, "nothing at {at}");
        at += read;
    }
    Ok(content)
}
