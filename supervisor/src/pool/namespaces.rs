//! Which namespaces workers can have on this machine. It is tried, since what forbids them is many things: a count, a
//! switch of the distribution, AppArmor, a container's filter.

use std::fs;
use std::io;
use std::sync::OnceLock;

use super::spawn::{Namespaces, try_out};

/// Switches that forbid user namespaces: the file, the value that does, and what to do.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0", "set the sysctl user.max_user_namespaces above 0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "set the sysctl kernel.unprivileged_userns_clone to 1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "allow refmill `userns` in an AppArmor profile, or set kernel.apparmor_restrict_unprivileged_userns to 0",
    ),
];

/// The most that can be had, found once; else why there are none and what to do about it.
pub fn available() -> Result<Namespaces, &'static str> {
    static FOUND: OnceLock<Result<Namespaces, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let Err(first) = try_out(Namespaces::WithUser) else { return Ok(Namespaces::WithUser) };
        try_out(Namespaces::WithoutUser).map(|()| Namespaces::WithoutUser).map_err(|_| reason(&first))
    });
    found.as_ref().copied().map_err(String::as_str)
}

fn reason(error: &io::Error) -> String {
    let is_set =
        |(file, value, _): &&(&str, &str, &str)| fs::read_to_string(file).is_ok_and(|text| text.trim() == *value);
    match SWITCHES.iter().find(is_set) {
        Some((_, _, remedy)) => format!("the kernel refuses them ({error}): {remedy}"),
        None => format!("the kernel or a container refuses them ({error})"),
    }
}
