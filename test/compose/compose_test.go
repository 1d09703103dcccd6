package compose

import "testing"

func TestThreeNodesInContainersRunOnceConvergeAndSurviveTheLossOfOne(t *testing.T) {
	f := newFleet(t)
	f.up()
	for _, n := range nodes {
		f.until(n+" answers", func() bool {
			_, code := f.in(n, "lease", "list", "--backend-timeout", "2s")
			return code == 0
		})
	}

	if !f.run("n1", "first") {
		t.Error("the first exec of an occurrence did not run it")
	}
	if f.run("n2", "first") || f.run("n3", "first") {
		t.Error("an occurrence was run again on another node")
	}
	if !f.run("n2", "second") || !f.run("n3", "third") {
		t.Error("another occurrence was not run")
	}
	at := f.converged(6) // pending and committed of three runs

	f.must("docker", "kill", "-s", "KILL", f.id["n2"])
	if !f.run("n1", "fourth") || f.run("n3", "fourth") {
		t.Error("with one node killed, an occurrence was not run exactly once")
	}
	f.must("docker", "start", f.id["n2"])
	f.until("the killed node answers again", func() bool {
		_, code := f.in("n2", "lease", "list", "--backend-timeout", "2s")
		return code == 0
	})
	if again := f.converged(8); again["n2"].Device != at["n2"].Device {
		t.Errorf("n2 came back as device %s, was %s", again["n2"].Device, at["n2"].Device)
	}
	if f.run("n2", "fourth") {
		t.Error("the node that was away ran the occurrence again")
	}

	third := at["n3"].Device
	f.until("n3 is seen to be served", func() bool { return f.served("n1", third) })
	f.must("docker", "pause", f.id["n3"])
	f.until("the lease of the paused node runs out", func() bool { return !f.served("n1", third) })
	if !f.run("n1", "fifth") || f.run("n2", "fifth") {
		t.Error("with one node paused, an occurrence was not run exactly once")
	}
	f.must("docker", "unpause", f.id["n3"])
	f.until("n3 is served again", func() bool { return f.served("n1", third) })
	f.converged(10)
	if f.run("n3", "fifth") {
		t.Error("the node that stood still ran the occurrence again")
	}
}
