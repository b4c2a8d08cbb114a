//! Hands one descriptor to the process at the other end of a Unix socket.
//!
//! The descriptor travels with a single byte. The receiver takes exactly one: none is an error,
//! and if a peer sends more, all of them are closed again.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// The byte that carries the descriptor; any other means the two sides are out of step.
const CARRIER: u8 = 0xFD;

/// Sends `fd` along `stream`; the caller keeps its own.
///
/// Waits as long as the stream's write time-out allows.
pub fn send_fd(stream: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let carrier = [IoSlice::new(&[CARRIER])];
        match rustix::net::sendmsg(stream, &carrier, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the one descriptor that [`send_fd`] sent; it is closed on exec.
///
/// Waits as long as the stream's read time-out allows.
pub fn recv_fd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut carrier = [0];
    // Room for some more than one, so that a peer that sends several is told apart.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let (received, mut fds) = loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(&mut carrier)];
        match rustix::net::recvmsg(stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => {
                let mut fds: Vec<OwnedFd> = Vec::new();
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(some) = message {
                        fds.extend(some);
                    }
                }
                break (received, fds);
            }
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    };
    let refused = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    if received.bytes == 0 {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer hung up before it sent its descriptor"));
    }
    if carrier[0] != CARRIER || received.flags.contains(ReturnFlags::CTRUNC) || fds.len() != 1 {
        return Err(refused(format!(
            "expected one descriptor, got {} with byte {:#04x}{}",
            fds.len(),
            carrier[0],
            if received.flags.contains(ReturnFlags::CTRUNC) { " and more that did not fit" } else { "" },
        )));
    }
    Ok(fds.remove(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    fn send_many(stream: &UnixStream, count: usize) {
        let fds = vec![stream.as_fd(); count];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let carrier = [IoSlice::new(&[CARRIER])];
        rustix::net::sendmsg(stream, &carrier, &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn one_descriptor_arrives_and_closes_on_exec() {
        let (here, there) = UnixStream::pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send_fd(&here, writer.as_fd()).unwrap();
        let got = recv_fd(&there).unwrap();
        let flags = rustix::io::fcntl_getfd(&got).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        drop(writer);
        rustix::io::write(&got, b"hi").unwrap();
        let mut read = [0; 2];
        rustix::io::read(&reader, &mut read).unwrap();
        assert_eq!(&read, b"hi");
    }

    #[test]
    fn several_descriptors_are_refused_and_closed() {
        for count in [2, 8, 20] {
            let (here, there) = UnixStream::pair().unwrap();
            send_many(&here, count);
            let error = recv_fd(&there).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            // All copies of `here` were closed: dropping ours is the end of the stream.
            drop(here);
            let error = recv_fd(&there).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        }
    }

    #[test]
    fn a_bare_byte_is_no_descriptor() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[CARRIER]).unwrap();
        let error = recv_fd(&there).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}
