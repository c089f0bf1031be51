//! A captured worker may send what it likes: the supervisor neither crashes, nor takes descriptors, nor waits past
//! its deadline.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use refmill::beat::Counters;
use refmill::report::{Report, Source};
use refmill::wire::{self, Event, MAX_FRAME_BYTES, WireError};
use refmill_supervisor::pool::mailbox::{Mailbox, MailboxError};
use refmill_supervisor::shutdown::Stop;

/// Longer than any machine needs to deliver what is already sent; a test that waits for it has failed.
const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn hello() -> Vec<u8> {
    wire::encode(&Event::Hello { server: "/tmp/x".into() }).unwrap()
}

fn send(socket: &OwnedFd, packet: &[u8], rights: &[ControlMessage<'_>]) {
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(packet)], rights, MsgFlags::empty(), None).unwrap();
}

/// What the mailbox makes of one packet.
fn receive(packet: &[u8]) -> Result<Event, MailboxError> {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    send(&peer, packet, &[]);
    mailbox.receive(Instant::now() + AMPLE, &Stop::new().unwrap())
}

fn frame_error(packet: &[u8]) -> WireError {
    match receive(packet) {
        Err(MailboxError::Frame(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn event_is_received() {
    assert_eq!(receive(&hello()).unwrap(), Event::Hello { server: "/tmp/x".into() });
}

#[test]
fn empty_packet_is_the_end_of_the_worker() {
    assert!(matches!(receive(&[]), Err(MailboxError::Gone)));
}

#[test]
fn closed_socket_is_the_end_of_the_worker() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    drop(peer);
    let answer = mailbox.receive(Instant::now() + AMPLE, &Stop::new().unwrap());
    assert!(matches!(answer, Err(MailboxError::Gone)));
}

#[test]
fn event_before_the_closing_is_still_received() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    send(&peer, &hello(), &[]);
    drop(peer);
    assert!(mailbox.receive(Instant::now() + AMPLE, &Stop::new().unwrap()).is_ok());
}

#[test]
fn short_packet_is_refused() {
    assert_eq!(frame_error(&hello()[..5]), WireError::Short { got: 5 });
}

#[test]
fn packet_that_crashed_ipc_channel_is_refused() {
    assert_eq!(frame_error(&[0xff; 20]), WireError::Magic);
}

#[test]
fn packet_of_exactly_the_limit_is_read() {
    let mut packet = hello();
    packet.resize(MAX_FRAME_BYTES, 0);
    assert!(matches!(frame_error(&packet), WireError::Length { .. }));
}

#[test]
fn packet_one_byte_over_the_limit_is_refused() {
    let mut packet = hello();
    packet.resize(MAX_FRAME_BYTES + 1, 0);
    assert!(matches!(receive(&packet), Err(MailboxError::Oversized)));
}

#[test]
fn packet_far_over_the_limit_is_refused_and_its_rest_is_not_another_packet() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    let stop = Stop::new().unwrap();
    send(&peer, &vec![7; 100_000], &[]);
    send(&peer, &hello(), &[]);
    let answer = mailbox.receive(Instant::now() + AMPLE, &stop);
    assert!(matches!(answer, Err(MailboxError::Oversized)));
    assert!(mailbox.receive(Instant::now() + AMPLE, &stop).is_ok());
}

#[test]
fn wrong_length_is_refused() {
    let mut packet = hello();
    packet[8] = 0xff;
    assert!(matches!(frame_error(&packet), WireError::Length { claimed: 255, .. }));
}

#[test]
fn huge_length_is_refused_without_allocating_it() {
    let mut packet = hello();
    packet[8..12].copy_from_slice(&[0xff; 4]);
    assert!(matches!(frame_error(&packet), WireError::Length { claimed: u32::MAX, .. }));
}

#[test]
fn unknown_version_is_refused() {
    let mut packet = hello();
    packet[4] = 9;
    assert_eq!(frame_error(&packet), WireError::Version { got: 9 });
}

#[test]
fn wrong_magic_is_refused() {
    let mut packet = hello();
    packet[0] = b'X';
    assert_eq!(frame_error(&packet), WireError::Magic);
}

#[test]
fn garbage_payload_is_refused() {
    let mut packet = hello();
    packet[12..].fill(0xff);
    assert_eq!(frame_error(&packet), WireError::Payload);
}

#[test]
fn trailing_bytes_are_refused() {
    let mut packet = hello();
    packet.push(0);
    packet[8] += 1;
    assert_eq!(frame_error(&packet), WireError::Payload);
}

#[test]
fn every_truncation_of_a_report_is_refused() {
    let report = Box::new(Report::new(Source::default()));
    let packet = wire::encode(&Event::Done { id: 1, report, counters: Counters::default() }).unwrap();
    let refused = (1..packet.len()).filter(|&len| receive(&packet[..len]).is_err()).count();
    assert_eq!(refused, packet.len() - 1);
}

#[test]
fn descriptors_are_refused_and_none_stays_open() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    let stop = Stop::new().unwrap();
    let before = open_descriptors();
    let sent = [0, 1, 2].repeat(80);
    send(&peer, &hello(), &[ControlMessage::ScmRights(&sent)]);
    let answer = mailbox.receive(Instant::now() + AMPLE, &stop);
    assert!(matches!(answer, Err(MailboxError::Descriptors)), "{answer:?}");
    assert_eq!(open_descriptors(), before);
}

#[test]
fn descriptors_with_an_oversized_packet_do_not_stay_open() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    let before = open_descriptors();
    send(&peer, &vec![7; MAX_FRAME_BYTES + 1], &[ControlMessage::ScmRights(&[0])]);
    assert!(mailbox.receive(Instant::now() + AMPLE, &Stop::new().unwrap()).is_err());
    assert_eq!(open_descriptors(), before);
}

#[test]
fn empty_packet_with_descriptors_is_refused_and_none_stays_open() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    let before = open_descriptors();
    send(&peer, &[], &[ControlMessage::ScmRights(&[0, 1])]);
    let answer = mailbox.receive(Instant::now() + AMPLE, &Stop::new().unwrap());
    assert!(matches!(answer, Err(MailboxError::Descriptors)), "{answer:?}");
    assert_eq!(open_descriptors(), before);
}

#[test]
fn silence_ends_at_the_deadline() {
    let (mut mailbox, _peer) = Mailbox::pair().unwrap();
    let deadline = Instant::now() + SHORT;
    let answer = mailbox.receive(deadline, &Stop::new().unwrap());
    assert!(matches!(answer, Err(MailboxError::Timeout)));
    assert!(Instant::now() >= deadline);
}

#[test]
fn deadline_that_has_passed_is_a_timeout() {
    let (mut mailbox, _peer) = Mailbox::pair().unwrap();
    let answer = mailbox.receive(Instant::now(), &Stop::new().unwrap());
    assert!(matches!(answer, Err(MailboxError::Timeout)));
}

#[test]
fn dripped_garbage_is_refused_at_its_first_packet() {
    let (mut mailbox, peer) = Mailbox::pair().unwrap();
    let drip = thread::spawn(move || {
        let dripped = (0..1000).take_while(|_| {
            thread::sleep(Duration::from_millis(1));
            let packet = [IoSlice::new(b"R")];
            sendmsg::<()>(peer.as_raw_fd(), &packet, &[], MsgFlags::MSG_NOSIGNAL, None).is_ok()
        });
        dripped.count()
    });
    let answer = mailbox.receive(Instant::now() + AMPLE, &Stop::new().unwrap());
    drop(mailbox);
    assert!(matches!(answer, Err(MailboxError::Frame(WireError::Short { got: 1 }))));
    assert!(drip.join().unwrap() < 1000, "the worker could go on although the mailbox was closed");
}

#[test]
fn worker_that_does_not_read_cannot_keep_the_sender() {
    use std::os::fd::AsFd;
    let (mailbox, _peer) = Mailbox::pair().unwrap();
    let stop = Stop::new().unwrap();
    let memory = std::fs::File::open("/dev/null").unwrap();
    let deadline = Instant::now() + SHORT;
    let send = || mailbox.send_region(wire::Region::Input, memory.as_fd(), deadline, &stop);
    let error = std::iter::repeat_with(send).find_map(Result::err).unwrap();
    assert!(matches!(error, MailboxError::Timeout), "{error:?}");
}

#[test]
fn stop_ends_the_waiting() {
    let (mut mailbox, _peer) = Mailbox::pair().unwrap();
    let stop = Stop::new().unwrap();
    let asked = stop.clone();
    let asker = thread::spawn(move || asked.request());
    let answer = mailbox.receive(Instant::now() + AMPLE, &stop);
    asker.join().unwrap();
    assert!(matches!(answer, Err(MailboxError::Interrupted)));
}
