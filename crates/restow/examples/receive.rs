//! Receives a send stream into a btrfs image, without root: `receive STREAM IMAGE`.

use std::error::Error;
use std::path::Path;

use restow::{ImageReceiver, Input, ReceiveEvent, ReceiveOptions};
use sendstream::Event;
use tree::{NoProgress, Parallel};

/// Receives the stream and returns the names of its subvolumes. The image is made if it does not
/// exist; otherwise a new one takes its place when it is complete.
pub(crate) fn receive(stream: &Path, image: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let options = ReceiveOptions::new(Parallel::new(2));
    let receiver = ImageReceiver::open(Input::open(stream)?, image, options)?;
    receiver.verify(&NoProgress)?;
    let mut names = Vec::new();
    let received = receiver.receive(&NoProgress, &mut |event| {
        if let ReceiveEvent::Stream(Event::Subvolume(sent)) = event {
            names.push(restow::text::of_name(&sent.name));
        }
    })?;
    match received.losses.first() {
        Some(loss) => Err(loss.to_string().into()),
        None => Ok(names),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(stream), Some(image)) = (arguments.next(), arguments.next()) else {
        return Err("usage: receive STREAM IMAGE".into());
    };
    for name in receive(stream.as_ref(), image.as_ref())? {
        use std::io::Write;
        writeln!(std::io::stdout(), "received {name}")?;
    }
    Ok(())
}
