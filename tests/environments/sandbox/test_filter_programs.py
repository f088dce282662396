"""Programs that use many system calls, or rare ones, run under the sandbox's filter."""

import os
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.environments.sandbox.blueprint import Part
from tests.environments.sandbox.boxes import look, make_blueprint, opened, said

PROGRAM = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int deep(int n) { return n ? deep(n - 1) + 1 : puts("deep enough"); }
int main(void) {
    if (fork() == 0) return write(1, "child\n", 6) != 6;
    wait(NULL);
    return deep(3) < 0;
}
"""
COMPILED = f"cd /tmp; cat > p.c <<'END'\n{PROGRAM}END\ngcc -g -O0 -o p p.c && "
CALL_I386 = b"\xcd\x80"


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a test whose programs are not below /usr, where the sandbox has them from."""
    missing = [one for one in programs if shutil.which(one, path="/usr/bin") is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


@needs("gcc", "gdb")
@pytest.mark.parametrize("user", ["root", "guest"])
def test_gdb_runs_a_program_and_prints_where_it_is(tmp_path: Path, user: str) -> None:
    commands = "-ex 'break puts' -ex run -ex backtrace -ex 'print 6*7' -ex kill"
    out = look(tmp_path, f"{COMPILED} HOME=/tmp gdb -nx -batch {commands} ./p 2>&1", user=user)
    assert "in deep (n=0)" in out
    assert "in main ()" in out
    assert "$1 = 42" in out


@needs("gcc", "strace")
def test_strace_follows_its_children(tmp_path: Path) -> None:
    out = look(tmp_path, f"{COMPILED} strace -f -e trace=write ./p 2>&1")
    assert 'write(1, "child' in out
    assert 'write(1, "deep enough' in out
    assert "+++ exited with 0 +++" in out


@needs("perl")
def test_perl_forks_and_talks_over_sockets(tmp_path: Path) -> None:
    script = (
        "use IO::Socket::INET; my $s = IO::Socket::INET->new(Listen => 1) or die;"
        "my $p = $s->sockport; if (fork) { my $c = $s->accept; print <$c>; wait }"
        "else { my $c = IO::Socket::INET->new(qq(127.0.0.1:$p)) or die; print $c qq(heard) }"
    )
    assert look(tmp_path, f"perl -e '{script}' 2>&1") == "heard"


@needs("python3")
def test_python_uses_processes_threads_and_locks(tmp_path: Path) -> None:
    script = (
        "import multiprocessing as m, concurrent.futures as f\n"
        "if __name__ == '__main__':\n"
        "    with m.Pool(2) as pool: print(sum(pool.map(abs, range(-9, 0))))\n"
        "    with f.ThreadPoolExecutor(4) as pool: print(sum(pool.map(abs, range(-9, 0))))\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.apply(len, ('four',)))\n"
    )
    out = look(tmp_path, f'cd /tmp; cat > s.py <<"END"\n{script}END\n/usr/bin/python3 s.py 2>&1')
    assert out.split() == ["45", "45", "4"]


@needs("tmux")
def test_tmux_serves_a_session(tmp_path: Path) -> None:
    script = (
        "export TERM=xterm LC_ALL=C.UTF-8; tmux new-session -d -s s 'echo shown; exec sleep 60';"
        "for i in $(seq 50); do tmux capture-pane -p -t s | grep -q . && break; sleep 0.1; done;"
        "tmux capture-pane -p -t s 2>&1; tmux kill-server"
    )
    assert look(tmp_path, script).strip() == "shown"


@needs("node")
def test_node_starts_threads_and_children(tmp_path: Path) -> None:
    script = (
        "const {Worker} = require('worker_threads');"
        "const out = require('child_process').execSync('echo child').toString();"
        "require('fs').readFile('/etc/passwd', e => console.log(out + e));"
        "new Worker('console.log(40 + 2)', {eval: true});"
    )
    assert sorted(look(tmp_path, f'node -e "{script}" 2>&1').split()) == ["42", "child", "null"]


JAVA = """
public class Main {
    public static void main(String[] words) throws Exception {
        var sum = new java.util.concurrent.atomic.AtomicInteger();
        java.util.stream.IntStream.range(0, 100).parallel().forEach(sum::addAndGet);
        var child = new ProcessBuilder("echo", "child").inheritIO().start();
        System.out.println(child.waitFor() + " " + sum);
    }
}
"""


def find_java() -> str:
    """A Java compiler that has its settings below /usr too."""
    for compiler in sorted(Path("/usr/lib/jvm").glob("*/bin/javac")):
        settings = compiler.parent.parent.glob("conf/**/*")
        if all(one.resolve().is_relative_to("/usr") for one in settings):
            return str(compiler.parent)
    return ""


@pytest.mark.soak
@pytest.mark.skipif(not find_java(), reason="no Java is installed")
def test_java_runs_threads_and_children(tmp_path: Path) -> None:
    script = f"cd /tmp; cat > Main.java <<'END'\n{JAVA}END\n{find_java()}/java Main.java 2>&1"
    assert look(tmp_path, script).splitlines() == ["child", "0 4950"]


GO = """
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func addInGoroutines() int64 {
	var sum int64
	var group sync.WaitGroup
	for n := int64(0); n < 1000; n++ {
		group.Add(1)
		go func(n int64) {
			defer group.Done()
			time.Sleep(time.Millisecond)
			atomic.AddInt64(&sum, n)
		}(n)
	}
	group.Wait()
	return sum
}

// On one processor the loop, which calls nothing, has to be preempted by a signal.
func preempt() bool {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	go func() {
		for n := 0; ; n++ {
		}
	}()
	ticker, deadline := time.NewTicker(time.Millisecond), time.After(time.Minute)
	for n := 0; n < 5; n++ {
		select {
		case <-ticker.C:
		case <-deadline:
			return false
		}
	}
	runtime.GC()
	return true
}

func runChild() string {
	out, err := exec.Command("sh", "-c", "echo child; exit 3").Output()
	return fmt.Sprintf("%s%v", out, err)
}

func hearSignal() os.Signal {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGUSR1)
	check(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	return <-heard
}

func talk(network, address string) string {
	listener, err := net.Listen(network, address)
	check(err)
	go func() {
		connection, err := listener.Accept()
		check(err)
		io.Copy(connection, connection)
		connection.Close()
	}()
	connection, err := net.Dial(network, listener.Addr().String())
	check(err)
	connection.SetDeadline(time.Now().Add(time.Minute))
	connection.Write([]byte(network))
	connection.(interface{ CloseWrite() error }).CloseWrite()
	echo, err := io.ReadAll(connection)
	check(err)
	return string(echo)
}

func main() {
	fmt.Println(addInGoroutines())
	fmt.Println(preempt())
	fmt.Println(runChild())
	fmt.Println(hearSignal())
	fmt.Println(talk("tcp", "127.0.0.1:0"), talk("unix", "/tmp/socket"))
}
"""


@pytest.mark.soak
@needs("go")
@pytest.mark.parametrize("user", ["root", "guest"])
def test_go_builds_a_program_that_runs_goroutines_children_and_sockets(
    tmp_path: Path, user: str
) -> None:
    script = (
        "export HOME=/tmp GOCACHE=/tmp/cache CGO_ENABLED=0; mkdir /tmp/main; cd /tmp/main;"
        f"cat > main.go <<'END'\n{GO}END\n"
        "go mod init example.org/main 2>/dev/null; go vet . && go build -o main . && ./main 2>&1"
    )
    expected = ["499500", "true", "child", "exit status 3", "user defined signal 1", "tcp unix"]
    assert look(tmp_path, script, user=user).splitlines() == expected


def find_postgres() -> str:
    return next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"))), "")


@pytest.mark.soak
@pytest.mark.skipif(not find_postgres(), reason="no PostgreSQL is installed")
def test_postgresql_starts_and_answers(tmp_path: Path) -> None:
    script = (
        "export LC_ALL=C.UTF-8; cd /tmp; initdb -D db -A trust >log && "
        "pg_ctl -D db -o '-k /tmp -h 127.0.0.1' -w -l log start >>log && "
        "psql -h /tmp -d postgres -Atc 'select sum(n) from generate_series(1, 10) n' ; "
        "pg_ctl -D db -m fast stop >>log || cat log"
    )
    placed = f"export PATH={find_postgres()}:$PATH; {script}"
    assert look(tmp_path, placed, user="guest") == "55"


def find_toolchain() -> Path | None:
    """A Rust toolchain, which the host need not have below /usr."""
    if shutil.which("rustc") is None:
        return None
    ran = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, cwd="/")
    return Path(ran.stdout.strip()) if ran.returncode == 0 else None


@pytest.mark.soak
@needs("gcc")
@pytest.mark.skipif(os.geteuid() != 0, reason="the toolchain may be in root's home directory")
async def test_cargo_builds_and_runs_offline(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    if toolchain is None or not (toolchain / "bin/cargo").exists():
        pytest.skip("no Rust is installed")
    blueprint = make_blueprint(tmp_path / "box")
    for name in ("rust-upper", "rust-work"):
        (tmp_path / name).mkdir()
    place = (str(tmp_path / name) for name in ("rust-upper", "rust-work"))
    part = Part("/mnt", (str(toolchain),), *place)
    script = (
        "export PATH=/mnt/bin:$PATH CARGO_HOME=/tmp/cargo RUSTFLAGS='-C linker=gcc'; cd /tmp;"
        "cargo new -q --vcs none hello && cd hello && cargo run -q --offline 2>&1"
    )
    async with opened(replace(blueprint, parts=(*blueprint.parts, part))) as box:
        assert (await said(box, script)).endswith("Hello, world!")


def i386_program(*calls: tuple[int, ...]) -> bytes:
    """An i386 program that makes calls of number and arguments, and exits with the last's errno."""
    code = b""
    for call in calls:
        # mov eax, ebx, ecx, edx
        words = zip(b"\xb8\xbb\xb9\xba", call, strict=False)
        code += b"".join(bytes([move]) + struct.pack("<I", word) for move, word in words)
        code += CALL_I386
    # mov ebx, eax; neg ebx; mov eax, 1
    code += b"\x89\xc3\xf7\xdb\xb8\x01\x00\x00\x00" + CALL_I386
    base, head = 0x08048000, 52 + 32
    identity = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + head, 52, 0, 0, 52, 32, 1, 40, 0, 0)
    size = head + len(code)
    return identity + header + struct.pack("<8I", 1, 0, base, base, size, size, 5, 4096) + code


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="an i386 program")
@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # write "ELF" of the program's own header, then close what is not open: EBADF.
        (((4, 1, 0x08048001, 3), (6, 99)), "ELF9"),
        (((288, 0),), "1"),
        (((435, 0, 0),), "38"),
        (((359, 40, 1, 0),), "97"),
        (((340, 1, 3, 0x08048000),), "1"),
    ],
)
def test_an_i386_program_has_a_table_of_its_own(
    tmp_path: Path, calls: tuple[tuple[int, ...], ...], expected: str
) -> None:
    program = tmp_path / "program"
    program.write_bytes(i386_program(*calls))
    program.chmod(0o755)
    try:
        subprocess.run([program], check=False, capture_output=True)
    except OSError:
        pytest.skip("this kernel runs no i386 programs")
    data = "".join(f"\\x{byte:02x}" for byte in program.read_bytes())
    script = f"printf '{data}' > /tmp/p; chmod +x /tmp/p; /tmp/p; echo $?"
    assert look(tmp_path, script) == expected
