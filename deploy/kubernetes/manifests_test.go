// Package kubernetes holds manifests for syncnode, and the test that reads them as an API server does. It is a module of its
// own, so that nobody gets the types of Kubernetes with syncnode. What the manifests say to the program is checked in
// cmd/syncnode.
package kubernetes

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds are those that the manifests may use.
var kinds = map[string]func() any{
	"v1 ConfigMap":                  func() any { return &corev1.ConfigMap{} },
	"v1 Service":                    func() any { return &corev1.Service{} },
	"v1 ServiceAccount":             func() any { return &corev1.ServiceAccount{} },
	"apps/v1 Deployment":            func() any { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":           func() any { return &appsv1.StatefulSet{} },
	"batch/v1 CronJob":              func() any { return &batchv1.CronJob{} },
	"policy/v1 PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
}

// objects reads all manifests strictly: a key that the API does not know, or has twice, is an error.
func objects(t *testing.T) (all []any) {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range bytes.Split(text, []byte("\n---\n")) {
			var is struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(doc, &is); err != nil {
				t.Fatalf("%s, document %d: %v", file, i+1, err)
			}
			make, ok := kinds[is.APIVersion+" "+is.Kind]
			if !ok {
				t.Fatalf("%s, document %d: %s %s is not known here", file, i+1, is.APIVersion, is.Kind)
			}
			object := make()
			if err := yaml.UnmarshalStrict(doc, object); err != nil {
				t.Errorf("%s, document %d, a %s: %v", file, i+1, is.Kind, err)
			}
			all = append(all, object)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// the is the only object of its type.
func the[T any](t *testing.T) *T {
	t.Helper()
	var found []*T
	for _, o := range objects(t) {
		if is, ok := o.(*T); ok {
			found = append(found, is)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d of %T, want 1", len(found), *new(T))
	}
	return found[0]
}

func pods(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	return map[string]corev1.PodSpec{
		"StatefulSet": the[appsv1.StatefulSet](t).Spec.Template.Spec,
		"Deployment":  the[appsv1.Deployment](t).Spec.Template.Spec,
		"CronJob":     the[batchv1.CronJob](t).Spec.JobTemplate.Spec.Template.Spec,
	}
}

// is reports whether the API was told so.
func is[T comparable](p *T, want T) bool { return p != nil && *p == want }

func TestTheManifestsAreWhatTheKubernetesAPIReads(t *testing.T) {
	if n := len(objects(t)); n != 7 {
		t.Errorf("%d objects", n)
	}
}

func TestAPodMayNothingThatItDoesNotNeed(t *testing.T) {
	for name, pod := range pods(t) {
		s := pod.SecurityContext
		if s == nil || !is(s.RunAsNonRoot, true) || !is(s.RunAsUser, 65532) || !is(s.FSGroup, 65532) || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod's security context is %+v", name, s)
		}
		if !is(pod.AutomountServiceAccountToken, false) || pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: the pod has a token of the API, or a namespace of its machine", name)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			s := c.SecurityContext
			if s == nil || !is(s.AllowPrivilegeEscalation, false) || !is(s.ReadOnlyRootFilesystem, true) || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
				t.Errorf("%s: the security context of %s is %+v", name, c.Name, s)
			}
			if !c.Resources.Limits.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: %s has a limit of CPU, or none of memory", name, c.Name)
			}
		}
		for _, v := range pod.Volumes {
			if v.HostPath != nil || v.Secret != nil && !is(v.Secret.DefaultMode, 0o440) {
				t.Errorf("%s: volume %s is of the machine, or a secret that others may read", name, v.Name)
			}
		}
	}
}

// Everything that the program is told to read or write has to be mounted: the image has nothing else.
func TestEveryFileOfAFlagIsOnAVolume(t *testing.T) {
	for name, pod := range pods(t) {
		runs := pod.Containers[0] // where commands may run
		c := ours(pod)
		mounts := mountsOf(c)
		if readOnly, ok := mountsOf(runs)["/tmp"]; !ok || readOnly {
			t.Errorf("%s: /tmp is not writable, where the sockets of runs are", name)
		}
		for _, arg := range c.Args {
			flag, value, _ := strings.Cut(arg, "=")
			if !strings.HasPrefix(flag, "--") || !strings.HasPrefix(value, "/") {
				continue
			}
			readOnly, ok := mounts[path.Dir(value)]
			if !ok || readOnly == (flag == "--data-dir") {
				t.Errorf("%s: %s is not on a volume, or on the wrong kind", name, arg)
			}
		}
	}
}

// ours is the container whose program is syncnode.
func ours(pod corev1.PodSpec) corev1.Container {
	return slices.Concat(pod.InitContainers, pod.Containers)[0]
}

// mountsOf are the volumes of a container by their place, and whether they are read-only.
func mountsOf(c corev1.Container) map[string]bool {
	all := map[string]bool{}
	for _, m := range c.VolumeMounts {
		all[m.MountPath] = m.ReadOnly
	}
	return all
}

func TestTheSidecarIsANativeOneThatSharesItsSocketAndNothingElse(t *testing.T) {
	set := the[appsv1.Deployment](t)
	pod := set.Spec.Template.Spec
	c, app := ours(pod), pod.Containers[0]
	if !is(c.RestartPolicy, corev1.ContainerRestartPolicyAlways) || len(pod.InitContainers) != 1 {
		t.Error("it is not a native sidecar: the application would not start, or not end")
	}
	const socket = "unix:/run/syncnode/node.sock"
	for _, want := range []string{"serve", "--no-journal", "--device-id=$(POD_UID)", "--listen=" + socket} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for place, readOnly := range mountsOf(c) {
		if !readOnly && place != "/run/syncnode" {
			t.Errorf("it may write to %s", place)
		}
	}
	if readOnly, ok := mountsOf(app)["/run/syncnode"]; !ok || readOnly {
		t.Error("the application does not reach the socket")
	}
	if len(app.Env) != 1 || app.Env[0].Name != "SYNCNODE_NODE" || app.Env[0].Value != socket {
		t.Errorf("exec would not use the sidecar: %v", app.Env)
	}
	for name, probe := range map[string]*corev1.Probe{"start": c.StartupProbe, "live": c.LivenessProbe, "ready": c.ReadinessProbe} {
		// A probe over the network would ask the pod's address, where nothing listens.
		if probe == nil || probe.Exec == nil || !slices.Equal(probe.Exec.Command, []string{"/syncnode", "ready", "--node=" + socket}) {
			t.Errorf("%s: the sidecar is not asked over its socket, or its etcd is asked", name)
		}
	}
	if c.StartupProbe.PeriodSeconds*c.StartupProbe.FailureThreshold < 30 || *pod.TerminationGracePeriodSeconds < 60 {
		t.Error("it has too little time to start, or to end after the application")
	}
	for k, v := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[k] != v {
			t.Error("the deployment does not select its pods")
		}
	}
}

func TestANodeIsProbedWithoutItsEtcdAndHasTheTimeToStop(t *testing.T) {
	set := the[appsv1.StatefulSet](t)
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	for name, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe, "/readyz at the start": c.StartupProbe} {
		want, _, _ := strings.Cut(name, " ")
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != want || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Port.StrVal != c.Ports[0].Name {
			t.Errorf("%s is not asked as it should be", name)
		}
	}
	var file struct {
		Drain    string
		Defaults struct{ Grace string }
	}
	if err := yaml.Unmarshal([]byte(the[corev1.ConfigMap](t).Data["fleet.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	need := 30 * time.Second
	for _, text := range []string{file.Drain, file.Defaults.Grace} {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		need += d
	}
	if has := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; has < need {
		t.Errorf("a node has %s to stop, and may need %s", has, need)
	}
}

func TestTheNodesOfTheSetAreMeantByItsServiceAndItsBudget(t *testing.T) {
	set, service, budget := the[appsv1.StatefulSet](t), the[corev1.Service](t), the[policyv1.PodDisruptionBudget](t)
	labels := set.Spec.Template.Labels
	for what, selects := range map[string]map[string]string{"set": set.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "budget": budget.Spec.Selector.MatchLabels} {
		if len(selects) == 0 {
			t.Errorf("the %s selects everything", what)
		}
		for k, v := range selects {
			if labels[k] != v {
				t.Errorf("the %s does not select the nodes", what)
			}
		}
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone || set.Spec.ServiceName != service.Name || budget.Spec.MaxUnavailable == nil {
		t.Error("nodes have no names of their own, or the budget no bound")
	}
	claim := set.Spec.VolumeClaimTemplates[0]
	if !slices.Equal(claim.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
		t.Error("two pods may use one volume")
	}
	if keep := set.Spec.PersistentVolumeClaimRetentionPolicy; keep == nil || keep.WhenDeleted != appsv1.RetainPersistentVolumeClaimRetentionPolicyType || keep.WhenScaled != keep.WhenDeleted {
		t.Error("a device's volume goes with its pod")
	}
	if policy := set.Spec.Template.Spec.SecurityContext.FSGroupChangePolicy; !is(policy, corev1.FSGroupChangeOnRootMismatch) {
		t.Error("each start opens the files of the device to the group")
	}
}

// The name of a Job is made of the scheduled time, and all pods of a Job have it.
func TestAJobNamesItsRunByItsSchedulesInstant(t *testing.T) {
	job := the[batchv1.CronJob](t)
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	c := pod.Containers[0]
	paths := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
			t.Fatalf("%s comes from elsewhere", e.Name)
		}
		paths[e.Name] = e.ValueFrom.FieldRef.FieldPath
	}
	if paths["JOB_NAME"] != "metadata.labels['"+batchv1.JobNameLabel+"']" || paths["POD_UID"] != "metadata.uid" {
		t.Errorf("%v", paths)
	}
	for _, want := range []string{"exec", "--no-journal", "--occurrence=$(JOB_NAME)", "--device-id=$(POD_UID)", "--if-held=wait=5m"} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if !is(pod.TerminationGracePeriodSeconds, 60) || !slices.Contains(c.Args, "--grace=30s") {
		t.Error("the command's time to end, or exec's time to write it down, changed alone")
	}
	if job.Spec.TimeZone == nil || job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Error("the zone is the cluster's, or jobs overlap, or a container starts again by itself")
	}
}

// A pod is replaced only where nothing was run.
func TestOnlyAPodThatRanNothingIsReplaced(t *testing.T) {
	spec := the[batchv1.CronJob](t).Spec.JobTemplate.Spec
	rules := spec.PodFailurePolicy.Rules
	if len(rules) != 2 || rules[0].Action != batchv1.PodFailurePolicyActionIgnore || rules[0].OnPodConditions[0].Type != corev1.DisruptionTarget {
		t.Fatalf("%+v", rules)
	}
	codes := rules[1].OnExitCodes
	if rules[1].Action != batchv1.PodFailurePolicyActionFailJob || codes == nil || codes.Operator != batchv1.PodFailurePolicyOnExitCodesOpNotIn || !slices.Equal(codes.Values, []int32{110, 113, 125}) || !is(codes.ContainerName, spec.Template.Spec.Containers[0].Name) {
		t.Errorf("%+v", codes)
	}
	if !is(spec.PodReplacementPolicy, batchv1.Failed) {
		t.Error("a pod is replaced before it has ended")
	}
}
