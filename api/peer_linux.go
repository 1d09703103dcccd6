package api

import (
	"net"

	"golang.org/x/sys/unix"
)

// uidOf is the user at the other end of a socket, as the kernel says.
func uidOf(c net.Conn) (uid int, known bool) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || asked != nil {
		return 0, false
	}
	return int(cred.Uid), true
}
