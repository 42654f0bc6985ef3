# What building and testing need on a machine. Sourced by the other scripts.
# On Debian and its kin what is missing is installed by apt-get; elsewhere it is named.

# Installs Debian packages, or says what to do and ends.
# Usage: need_install "what is missing" package...
need_install() {
    local what=$1
    shift
    if ! command -v apt-get >/dev/null; then
        echo "$what: install it with your system's package manager (Debian calls it: $*)" >&2
        exit 1
    fi
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "$what: run as root: apt-get install $*" >&2
            exit 1
        fi
        sudo=(sudo)
    fi
    echo "$what: installing $*" >&2
    if [ -z "${need_updated:-}" ]; then
        "${sudo[@]}" apt-get update -qq </dev/null
        need_updated=1
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" </dev/null
}

need_rust() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust $(need_rust_version) or later from https://rustup.rs" >&2
        exit 1
    fi
    local wanted given
    wanted=$(need_rust_version)
    given=$(cargo --version | awk '{print $2}')
    # In the order of versions the older of the two comes first.
    if [ "$(printf '%s\n' "$wanted" "${given%%-*}" | sort -V | head -n 1)" != "$wanted" ]; then
        echo "Rust $given is too old, $wanted or later is needed: run rustup update stable," \
            "or install it from https://rustup.rs" >&2
        exit 1
    fi
}

# What Cargo.toml asks for.
need_rust_version() {
    sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.toml" | head -n 1
}

# SQLite and the TLS library are compiled from C.
need_compiler() {
    if ! command -v cc >/dev/null; then
        need_install "a C compiler is missing" gcc libc6-dev
    fi
}

need_openssl() {
    if ! command -v openssl >/dev/null; then
        need_install "openssl is missing" openssl
    fi
}

# The lines that `mainstay serve` prints are tried as they are printed.
need_curl() {
    if ! command -v curl >/dev/null; then
        need_install "curl is missing" curl
    fi
}

# It reads the unit in contrib/, which is for Linux alone.
need_systemd_analyze() {
    if [ "$(uname -s)" = Linux ] && ! command -v systemd-analyze >/dev/null; then
        need_install "systemd-analyze is missing" systemd
    fi
}

# The tests start private servers from these programs; the machine's own server is never used.
need_postgresql() {
    if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
        return
    fi
    if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
        # Debian's package would start a server on port 5432 that nobody asked for.
        need_install "PostgreSQL is missing" postgresql-common
        sed -i 's/^#\?create_main_cluster *=.*/create_main_cluster = false/' \
            /etc/postgresql-common/createcluster.conf
    fi
    need_install "PostgreSQL is missing" postgresql
}

# The programs alone: Debian's package of the whole server would start one on port 3306 that nobody
# asked for.
need_mariadb() {
    if command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; then
        return
    fi
    need_install "MariaDB is missing" mariadb-server-core mariadb-client-core
}

# Debian's package starts a broker on port 1883 where services are started at installation; the tests use
# brokers of their own.
need_mosquitto() {
    if command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ]; then
        return
    fi
    need_install "mosquitto is missing" mosquitto
}

# Debian's package starts a broker on port 5672, which no test touches.
need_rabbitmq() {
    if command -v rabbitmq-server >/dev/null || [ -x /usr/sbin/rabbitmq-server ]; then
        return
    fi
    need_install "RabbitMQ is missing" rabbitmq-server
}

# Programs in Python that the tests call, in an environment of their own. Sets need_python_bin, the folder of the
# programs.
need_python() {
    if ! python3 -m venv --help >/dev/null 2>&1 || ! python3 -c 'import ensurepip' 2>/dev/null; then
        need_install "Python with its venv is missing" python3 python3-venv
    fi
    need_python_bin=$("$(dirname "${BASH_SOURCE[0]}")/python-environment")
}
