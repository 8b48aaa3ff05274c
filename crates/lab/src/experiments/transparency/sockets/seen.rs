//! A socket's data and errors -> text that is the same at every repetition.
//!
//! Comparisons need text without times, port numbers or memory addresses.

use super::PAUSE;
use linux::sockets::{Message, receive};
use std::fmt::Display;
use std::io::{self, Read};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

pub(super) fn read_all(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn read_exactly(stream: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Receives the next message. Returns a description of whether it has the expected bytes.
pub(super) fn arrived(receiver: &UdpSocket, bytes: &[u8]) -> String {
    let mut room = vec![0; bytes.len() + 1];
    match receiver.recv(&mut room) {
        Ok(len) => is_same(&room[..len], bytes),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => "lost".to_owned(),
        Err(why) => why.to_string(),
    }
}

pub(super) fn is_same(received: &[u8], sent: &[u8]) -> String {
    if received == sent {
        return format!("all {} bytes", sent.len());
    }
    let same = received.iter().zip(sent).take_while(|(one, other)| one == other).count();
    format!("{} bytes of {}, the first {same} as they were sent", received.len(), sent.len())
}

/// Waits a short time for errors in a socket's error queue. Returns descriptions of the errors.
pub(super) fn errors_of(socket: &UdpSocket) -> Vec<String> {
    let mut told = Vec::new();
    let until = Instant::now() + PAUSE;
    while told.is_empty() && Instant::now() < until {
        while let Ok(message) = receive(socket, 1, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) {
            told.extend(error_in(&message));
        }
        thread::sleep(Duration::from_millis(2));
    }
    told
}

/// Describes an error in the form of `struct sock_extended_err` (linux/errqueue.h): error, origin, type, code and a
/// number. Returns `None` for other messages.
fn error_in(message: &Message) -> Option<String> {
    let value = &message.controls.iter().find(|control| {
        [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)]
            .contains(&(control.level, control.kind))
    })?;
    let value = &value.value;
    let word = |at: usize| value.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let origin = match *value.get(4)? {
        SO_EE_ORIGIN_LOCAL => "the own host",
        SO_EE_ORIGIN_ICMP | SO_EE_ORIGIN_ICMP6 => "ICMP",
        _ => "another",
    };
    let why = io::Error::from_raw_os_error(word(0)?.cast_signed());
    Some(format!("{origin}: type {}, code {}, {}: {why}", value.get(5)?, value.get(6)?, word(8)?))
}

pub(super) fn told<T: Display>(outcome: io::Result<T>) -> String {
    match outcome {
        Ok(value) => value.to_string(),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => "nothing comes".to_owned(),
        Err(why) => why.to_string(),
    }
}

/// Origin of an error that the own host caused (linux/errqueue.h).
const SO_EE_ORIGIN_LOCAL: u8 = 1;
const SO_EE_ORIGIN_ICMP: u8 = 2;
const SO_EE_ORIGIN_ICMP6: u8 = 3;
