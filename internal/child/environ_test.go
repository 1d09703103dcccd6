package child_test

import (
	"slices"
	"testing"

	"github.com/syncnode/syncnode/internal/child"
)

func TestEnvironOfAChild(t *testing.T) {
	base := []string{
		"A=1", "PATH=/bin", "SYNCNODE_PASSWORD_FILE=/secret", "SYNCNODE_ENDPOINTS=http://e:2379", "A=2", "EMPTY=",
		"ETCDCTL_USER=root:pw", "SYNCNODE_RUN_ID=outer", "SYNCNODE_RUN_DEADLINE=outer", "broken", "=x", "SYNCNODEX=kept", "E=a=b",
	}
	got := child.Environ(base, child.Private, map[string]string{"SYNCNODE_RUN_ID": "inner", "EMPTY": "full", "B": ""})
	want := []string{"PATH=/bin", "A=2", "SYNCNODEX=kept", "E=a=b", "B=", "EMPTY=full", "SYNCNODE_RUN_ID=inner"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := child.Environ(base[:1], nil, nil); !slices.Equal(got, []string{"A=1"}) {
		t.Errorf("without anything to do: %q", got)
	}
}
