//! What `moneta cluster` prints.

use std::io::{Write, stdout};
use std::path::Path;

use super::certificates::Certificates;
use super::plan::{Plan, Process};
use super::plane::Plane;
use super::users::{self, Users};
use super::{admin, process};
use crate::this_program;

/// Where everything is, and what to try.
pub fn started(dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "A cluster in {}\n", dir.display())?;
    writeln!(out, "zone  process  serves on        admin")?;
    let scheme = if plan.tls { "https" } else { "http" };
    for process in &plan.processes {
        let Process { zone, name, .. } = process;
        let is_spare = admin::ready(&process.admin_address()).is_ok_and(|ready| ready.is_spare());
        let spare = if is_spare { "  a spare: another process has its slot" } else { "" };
        writeln!(out, "{zone:<5} {name:<8} {:<16} {scheme}://{}{spare}", process.address(), process.admin_address())?;
    }
    if let Some(plane) = Plane::of(dir, plan) {
        let address = plane.address();
        writeln!(
            out,
            "{:<5} {:<8} {address:<16} the control plane; in a browser: {scheme}://{address}/",
            "", "control"
        )?;
    }
    let proxies: Vec<&Process> = plan.processes.iter().filter(|process| process.proxy).collect();
    let [near, far] = [proxies[0].port, proxies[1].port];
    let killed = &plan.processes[0];
    let (name, pid, folder) = (&killed.name, process::pid_file(dir, killed), dir.display());
    let moneta = this_program::word();
    let protected = if plan.tls {
        format!(
            "\nAll connections are protected by TLS. '{}' has the authority and the certificates; clients show app.pem, and the admin \
             ports\nare for operator.pem: curl --cacert ca.pem --cert operator.pem --key operator.key https://{}/stats\n{}",
            Certificates::of(dir).folder().display(),
            proxies[0].admin_address(),
            secrets(dir, plan)
        )
    } else {
        String::new()
    };
    let talk = if plan.tls {
        let certificates = Certificates::of(dir);
        let [ca, cert, key] =
            [certificates.authority(), certificates.certificate(users::APP), certificates.key(users::APP)];
        format!(
            "mc() {{ printf \"$2\\r\\nquit\\r\\n\" | openssl s_client -quiet -verify_quiet -verify_return_error -CAfile '{}' -cert '{}' -key '{}' \\\n    \
             -connect 127.0.0.1:$1; }}",
            ca.display(),
            cert.display(),
            key.display()
        )
    } else {
        r#"mc() { exec 3<>/dev/tcp/127.0.0.1/$1; printf "$2\r\nquit\r\n" >&3; cat <&3; }"#.to_owned()
    };
    write!(
        out,
        "
Each zone has all data; each key is on one node of each zone. Clients speak memcached's protocol to the proxy of their zone.

try, in bash
  {talk}
  mc {near} 'set greeting 0 0 5\\r\\nhello'       write through the proxy of zone {}
  mc {far} 'get greeting'                       read through the one of zone {}
  kill -9 $(cat '{}')
  {moneta} cluster status --dir '{folder}'
                                               {name} does not run; reads and writes go on
  mc {near} 'set greeting 0 0 3\\r\\nyou'
  {moneta} cluster up --dir '{folder}'
                                               {name} runs again, and reads what it missed from another zone
  {moneta} cluster roll --dir '{folder}'          restarts all nodes, one after the other
stop  {moneta} cluster down --dir '{folder}'
{protected}",
        proxies[0].zone,
        proxies[1].zone,
        pid.display(),
    )?;
    Ok(())
}

/// How clients log in that show no certificate.
fn secrets(dir: &Path, plan: &Plan) -> String {
    if !plan.users {
        return String::new();
    }
    let log_in = Users(dir).log_in();
    format!("Clients without a certificate log in to a proxy as '{}' says, USER:SECRET.\n", log_in.display())
}

/// A line for each process. Returns whether all are ready.
pub fn status(dir: &Path, plan: &Plan) -> anyhow::Result<bool> {
    let mut out = stdout().lock();
    writeln!(out, "zone  process  serves on        pid      items      hits   hints  version  state")?;
    let mut all_ready = true;
    for process in &plan.processes {
        let pid = process::pid(dir, process);
        let ready = admin::ready(&process.admin_address());
        let state = match (&pid, &ready) {
            (None, _) => "does not run".to_owned(),
            (_, Err(error)) => format!("does not answer: {error}"),
            (_, Ok(ready)) if !ready.ready && !ready.notes.is_empty() => {
                format!("not ready: {}", ready.notes.join("; "))
            }
            (_, Ok(ready)) if !ready.ready => format!("not ready: {}", ready.phase),
            (_, Ok(ready)) if ready.notes.is_empty() => "ready".to_owned(),
            (_, Ok(ready)) => format!("ready: {}", ready.notes.join("; ")),
        };
        all_ready &= pid.is_some() && ready.is_ok_and(|ready| ready.ready);
        let Process { zone, name, .. } = process;
        let pid_text = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        write!(out, "{zone:<5} {name:<8} {:<16} {pid_text:<8} ", process.address())?;
        // A process that does not run may have left its ports to another program.
        let admin = process.admin_address();
        match pid.and_then(|_| admin::numbers(&admin).ok()) {
            Some(numbers) => {
                let or_none = |shown: bool, text: String| if shown { text } else { "-".to_owned() };
                let items = or_none(!process.proxy, numbers.items.to_string());
                let hits = or_none(numbers.gets > 0, format!("{} %", 100 * numbers.hits / numbers.gets.max(1)));
                let hints = if process.proxy { admin::view(&admin).unwrap_or_default().hints } else { 0 };
                let hints = or_none(process.proxy, hints.to_string());
                writeln!(out, "{items:<10} {hits:<6} {hints:<6} {:<8} {state}", numbers.version)?;
            }
            None => writeln!(out, "{0:<10} {0:<6} {0:<6} {0:<8} {state}", "-")?,
        }
    }
    if let Some(plane) = Plane::of(dir, plan) {
        let pid = plane.pid();
        let pid_text = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let state = match (pid, plane.summary()) {
            (None, _) => "does not run".to_owned(),
            (_, Ok(summary)) => summary,
            (_, Err(error)) => format!("does not answer: {error}"),
        };
        all_ready &= pid.is_some();
        writeln!(out, "{:<5} {:<8} {:<16} {pid_text:<8} {:<34} {state}", "-", "control", plane.address(), "")?;
    }
    Ok(all_ready)
}

/// What was ended.
pub fn ended(dir: &Path, count: usize) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(
        out,
        "{count} processes ended. Data and ports stay in {}: remove it, or `{} cluster up` again.",
        dir.display(),
        this_program::word()
    )?;
    Ok(())
}
