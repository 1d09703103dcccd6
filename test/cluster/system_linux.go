package cluster

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr ends a child with its parent, also a child that is paused.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped says whether the child pid has taken its stop signal.
func stopped(pid int) (bool, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0, err
}

// owner returns the first of pids that holds the other end of conn, a TCP connection over IPv4 loopback.
func owner(conn net.Conn, pids []int) (int, bool) {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return 0, false
	}
	inode, ok := socketInode(remote)
	if !ok {
		return 0, false
	}
	want := "socket:[" + inode + "]"
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if link, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && link == want {
				return pid, true
			}
		}
	}
	return 0, false
}

// socketInode finds the socket bound to local in the kernel's table.
func socketInode(local *net.TCPAddr) (string, bool) {
	ip := local.IP.To4()
	if ip == nil {
		return "", false
	}
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], local.Port)
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local remote state queues timer retransmits uid timeout inode
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == want && fields[9] != "0" {
			return fields[9], true
		}
	}
	return "", false
}
