//! Texts made from the declarations: the reference (`docs/options.md`) and the example file (`deploy/moneta.toml`).
//!
//! Both are committed as files for readers; a test compares them with what is generated here.

use std::fmt::Write;

use moneta_options::document;

use crate::options::extended;
use crate::options::foreign::{FOREIGN, Fate};
use crate::options::sections;

const REFERENCE_HEAD: &str = "\
# Options of `moneta serve`

<!-- Made by `moneta config --reference`; edit crates/moneta/src/options/sections/ instead. -->

An option, here `idle_timeout`, can be set in seven places; the first that has it wins:

1. by hand, on a process that runs: `moneta set-option HOST:PORT idle_timeout 5m` ([properties.md](properties.md#by-hand))
2. a flag: `--idle-timeout 5m`, or a short one that stands with the option
3. an environment variable: `MONETA_IDLE_TIMEOUT=5m`
4. a property of the control plane, for options that change at run time ([properties.md](properties.md))
5. what `set-option --save` has kept, in the file of `saved_options`
6. a line of the TOML file that `--config` or `MONETA_CONFIG` names: `idle_timeout = \"5m\"`
7. the default

`moneta config`, with the flags, environment and file of `moneta serve`, prints what would be in force and where each value came
from; `moneta config --from HOST:PORT` what a running process has; `moneta config --example` a TOML file with every option.

Sizes are in bytes, or have a suffix k, m, g or t (powers of 1024). Times are in seconds, or have a suffix s, m, h or d; some
take ms. A switch as a flag needs no value (`--no-evict`); `--no-evict=false` turns it off. Where *reload* stands, a changed
value takes effect on SIGHUP. What is in italics says when to change an option, or to what.
";

const REFERENCE_LISTENERS: &str = "
## Further listeners

Only in the file, any number of times, beside the addresses of `listen` and `unix_socket`:

```toml
[[listener]]
address = \"127.0.0.1:11300\"   # with its port; or the absolute path of a Unix socket
policy = \"batch\"              # online (default) or batch
max_connections = 100         # its limits; without them the node's options of the same names hold
idle_timeout = \"10m\"
output_limit = \"1m\"
admin_commands = \"none\"       # commands of operators that it obeys, in place of the node's
name = \"loads\"                # its name in the file of users (security.md); without it its app, or main or batch
users = \"off\"                 # its clients need not be users, though the node has some
tls = \"off\"                   # its connections are plain where others are not; or \"on\"
max_operations = 50000        # what its connections may do in a second, together; 0: no limit, even where the node has one
max_bytes = \"100m\"
```

`batch` is bulk traffic (ssd-tier.md); a node with RAM only treats both alike. Connections of a listener that has its own
`max_connections` count among the node's, too, but for 32 of a listener that obeys commands which the node's `admin_commands`
denies. `unix_mask` in such a table sets the permissions of that one socket, `tls_clients` whether its clients show certificates.
A changed listener takes effect after a restart.
";

const REFERENCE_APPS: &str = "
## Apps of a proxy

Only in the file of `moneta proxy`, any number of times. Each has its own cluster; cluster.md says which requests go to which.

```toml
zone = \"a\"                    # options outside the tables hold for all apps that have no others
[[app]]
name = \"sessions\"
prefix = \"sess:\"              # keys that begin so; \"\" takes all that are no other app's
strip_prefix = true           # nodes get keys without it; default false
topology = \"sessions.toml\"
ack = \"all\"                   # any option of the section Proxy but `app`, and disable_flush_all
[[app]]
name = \"feed\"
topology = \"feed.toml\"
[[listener]]
address = \"127.0.0.1:11311\"
app = \"feed\"                  # what comes through this listener is this app's, whatever its keys are
```

Options that change on SIGHUP do so in a table, too, each app by itself; another name, prefix or number of tables takes a
restart. What a topology says is followed at once.
";

const REFERENCE_FOREIGN: &str = "
## Memcached's other flags

What start scripts ask of the process is done; what sets up memcached's own engine changes nothing, as the log says.

| Flag | | Here |
|---|---|---|
";

const REFERENCE_EXTENDED: &str = "
Of `-o`, `idle_timeout=SECONDS` sets the option of that name, and with `-Z` `ssl_chain_cert` sets `tls_cert`, `ssl_key` `tls_key`,
`ssl_ca_cert` `tls_ca`, `ssl_verify_mode` `tls_clients` (0: none, 1: ask, 2 and 3: require), and `ssl_min_version`
`tls_min_version` (0 to 2: 1.2, 3: 1.3). These are taken; all others are refused:

| Name | Here |
|---|---|
";

/// The reference, in Markdown.
pub fn reference() -> String {
    let mut text = String::from(REFERENCE_HEAD);
    text.push_str(&document::reference(&sections::ALL));
    text.push_str(REFERENCE_LISTENERS);
    text.push_str(REFERENCE_APPS);
    text.push_str(REFERENCE_FOREIGN);
    for flag in FOREIGN {
        let fate = match flag.fate {
            Fate::Done => "done",
            Fate::Noted => "noted",
            Fate::Refused => "refused",
        };
        let _ = writeln!(text, "| `-{}`, `--{}` | {fate} | {} |", flag.short, flag.long, flag.meaning);
    }
    text.push_str(REFERENCE_EXTENDED);
    for (names, meaning) in extended::noted() {
        let _ = writeln!(text, "| {names} | {meaning} |");
    }
    text
}

/// A TOML file with every option at its default; those without one are commented out.
pub fn example() -> String {
    let mut text = String::from(
        "# Options of `moneta serve --config FILE`, all at their defaults. Made by `moneta config --example`; docs/options.md\n\
         # says more on each. A flag or an environment variable wins over a line here.\n",
    );
    text.push_str(&document::example(&sections::ALL));
    text.push_str(
        "\n# Further listeners, any number of them:\n\
         # [[listener]]\n\
         # address = \"127.0.0.1:11300\"\n\
         # policy = \"batch\"\n\
         # max_connections = 100\n",
    );
    text
}
