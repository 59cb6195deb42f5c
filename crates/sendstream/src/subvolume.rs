//! The subvolume that a stream builds.

use crate::command::Command;

/// The description of a subvolume at the start of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSubvolume {
    /// Its name.
    pub name: Box<[u8]>,
    /// The UUID that becomes its received UUID.
    pub uuid: [u8; 16],
    /// The transaction of its last change.
    pub ctransid: u64,
    /// The UUID and transaction of the parent that an incremental stream needs.
    pub parent: Option<([u8; 16], u64)>,
}

impl SentSubvolume {
    /// The subvolume that this command starts, if it starts one.
    pub fn started_by(command: &Command<'_>) -> Option<SentSubvolume> {
        match *command {
            Command::Subvol {
                path,
                uuid,
                ctransid,
            } => Some(SentSubvolume {
                name: path.into(),
                uuid,
                ctransid,
                parent: None,
            }),
            Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid,
            } => Some(SentSubvolume {
                name: path.into(),
                uuid,
                ctransid,
                parent: Some((clone_uuid, clone_ctransid)),
            }),
            _ => None,
        }
    }
}
