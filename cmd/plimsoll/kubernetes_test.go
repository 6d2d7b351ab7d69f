package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"plimsoll/internal/freeport/freeporttest"
)

// podSpec holds the fields of a pod's specification that the recipes for Kubernetes set.
type podSpec struct {
	Subdomain     string
	RestartPolicy string `yaml:"restartPolicy"`
	Containers    []struct {
		Name          string
		Command, Args []string
		Env           []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef struct {
					FieldPath string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct {
		Name   string
		Secret *struct {
			SecretName string `yaml:"secretName"`
		}
	}
}

// jobSpec holds the fields of an indexed Job's specification that the recipes set.
type jobSpec struct {
	CompletionMode           string `yaml:"completionMode"`
	Completions, Parallelism int
	BackoffLimit             int `yaml:"backoffLimit"`
	PodFailurePolicy         struct {
		Rules []struct {
			Action      string
			OnExitCodes struct {
				ContainerName string `yaml:"containerName"`
				Operator      string
				Values        []int
			} `yaml:"onExitCodes"`
		}
	} `yaml:"podFailurePolicy"`
	Template struct{ Spec podSpec }
}

// resource is any of a manifest's.
type resource struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     yaml.Node
}

// manifest reads the objects of a file by their kinds.
func manifest(t *testing.T, name string) map[string]*resource {
	t.Helper()
	all := map[string]*resource{}
	d := yaml.NewDecoder(strings.NewReader(read(t, "../../examples/kubernetes/"+name)))
	for {
		o := new(resource)
		if d.Decode(o) != nil {
			break
		}
		all[o.Kind] = o
	}
	return all
}

// is decodes what an object says.
func (o *resource) is(t *testing.T, spec any) {
	t.Helper()
	if o == nil {
		t.Fatal("it is missing")
	}
	if err := o.Spec.Decode(spec); err != nil {
		t.Fatal(err)
	}
}

// pods describes the n containers that a manifest runs: their arguments, the variables of each, and their Job.
type pods struct {
	n    int
	args []string
	env  func(index int, port string) []string
	job  jobSpec
}

// replicated are the Jobs of a JobSet.
type replicated struct {
	FailurePolicy struct {
		Rules []struct {
			Action              string
			OnJobFailureReasons []string `yaml:"onJobFailureReasons"`
		}
	} `yaml:"failurePolicy"`
	Coordinator    *struct{ JobIndex, PodIndex int }
	ReplicatedJobs []struct {
		Name     string
		Template struct{ Spec jobSpec }
	} `yaml:"replicatedJobs"`
}

// restartsTogether checks that Jobs fail as a whole, and what would fail again fails the set.
func (r *replicated) restartsTogether(t *testing.T, n int) {
	t.Helper()
	rule := r.FailurePolicy.Rules[0]
	if job := r.ReplicatedJobs[0].Template.Spec; rule.Action != "FailJobSet" || !slices.Equal(rule.OnJobFailureReasons, []string{"PodFailurePolicy"}) || job.BackoffLimit != n-1 {
		t.Errorf("rule %v, %d pods, backoffLimit %d", rule, n, job.BackoffLimit)
	}
}

// plainJob is the indexed Job: its pods find the first by the Service, whose name is their subdomain.
func plainJob(t *testing.T) *pods {
	t.Helper()
	all := manifest(t, "job.yaml")
	p := &pods{}
	all["Job"].is(t, &p.job)
	var service struct {
		ClusterIP string `yaml:"clusterIP"`
		Selector  map[string]string
	}
	all["Service"].is(t, &service)
	name, c := all["Job"].Metadata.Name, p.job.Template.Spec.Containers[0]
	if service.ClusterIP != "None" || service.Selector["batch.kubernetes.io/job-name"] != name || p.job.Template.Spec.Subdomain != all["Service"].Metadata.Name ||
		c.Env[0].Name != "MASTER_ADDR" || c.Env[0].Value != name+"-0."+all["Service"].Metadata.Name {
		t.Errorf("pods do not find %s: %+v", c.Env[0].Value, service)
	}
	p.n, p.args, p.env = p.job.Completions, c.Args, indexed
	return p
}

// indexed returns the variables that an indexed Job and its manifest set for a pod, where this machine is all pods.
func indexed(index int, port string) []string {
	return []string{fmt.Sprintf("JOB_COMPLETION_INDEX=%d", index), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port}
}

func jobSet(t *testing.T) *pods {
	t.Helper()
	var set replicated
	manifest(t, "jobset.yaml")["JobSet"].is(t, &set)
	job := set.ReplicatedJobs[0].Template.Spec
	c := job.Template.Spec.Containers[0]
	if e := c.Env[0]; set.Coordinator == nil || e.Name != "MASTER_ADDR" || e.ValueFrom.FieldRef.FieldPath != "metadata.annotations['jobset.sigs.k8s.io/coordinator']" {
		t.Errorf("pods do not find the first: %+v", c.Env)
	}
	set.restartsTogether(t, job.Completions)
	return &pods{job.Completions, c.Args, indexed, job}
}

// trainJob is a TrainJob by its runtime, whose torch policy tells the pods who they are.
func trainJob(t *testing.T) *pods {
	t.Helper()
	all := manifest(t, "trainjob.yaml")
	var runtime struct {
		MLPolicy struct {
			NumNodes int       `yaml:"numNodes"`
			Torch    *struct{} `yaml:"torch"`
		} `yaml:"mlPolicy"`
		Template struct{ Spec replicated }
	}
	var job struct {
		RuntimeRef struct{ Kind, Name string } `yaml:"runtimeRef"`
		Trainer    struct {
			NumNodes int `yaml:"numNodes"`
			Args     []string
		}
	}
	all["TrainingRuntime"].is(t, &runtime)
	all["TrainJob"].is(t, &job)
	if job.RuntimeRef.Kind != "TrainingRuntime" || job.RuntimeRef.Name != all["TrainingRuntime"].Metadata.Name || runtime.MLPolicy.Torch == nil {
		t.Errorf("%+v of %+v", job, runtime)
	}
	n := job.Trainer.NumNodes
	runtime.Template.Spec.restartsTogether(t, n)
	env := func(index int, port string) []string {
		return []string{
			fmt.Sprintf("JOB_COMPLETION_INDEX=%d", index), fmt.Sprintf("PET_NNODES=%d", n), "PET_NPROC_PER_NODE=1", fmt.Sprintf("PET_NODE_RANK=%d", index),
			"PET_MASTER_ADDR=127.0.0.1", "PET_MASTER_PORT=" + port,
		}
	}
	return &pods{n, job.Trainer.Args, env, runtime.Template.Spec.ReplicatedJobs[0].Template.Spec}
}

// run starts all pods with more arguments; root stands for the root of what they share.
func (p *pods) run(t *testing.T, root string, more ...string) (all []*process) {
	t.Helper()
	_, port, _ := net.SplitHostPort(freeporttest.Address(t))
	args := slices.Concat(p.args, smaller, more)
	for _, mount := range p.job.Template.Spec.Containers[0].VolumeMounts {
		for i, a := range args {
			args[i] = strings.Replace(a, "="+mount.MountPath+"/", "="+filepath.Join(root, mount.MountPath)+"/", 1)
		}
	}
	for i := range p.n {
		pod := program(t, nil, args...)
		pod.Env = append(append(pod.Env, "PLIMSOLL_SECRET="), p.env(i, port)...)
		pod.start()
		all = append(all, pod)
	}
	return all
}

// again reports whether a pod that ended with this code is made again.
func (p *pods) again(code int) bool {
	rule := p.job.PodFailurePolicy.Rules[0]
	return code != 0 && !(rule.Action == "FailJob" && rule.OnExitCodes.Operator == "In" && slices.Contains(rule.OnExitCodes.Values, code))
}

// The recipes for Kubernetes train the bits of one process, with exactly the arguments that are in them. When one pod is told to end, all
// pods end, are made again and resume. A pod that would fail again is not made again.
func TestKubernetesRecipesTrain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("nightly: TestSlurmScriptTrains starts processes as a recipe does, too")
	}
	for name, recipe := range map[string]func(*testing.T) *pods{"job": plainJob, "jobset": jobSet, "trainjob": trainJob} {
		t.Run(name, func(t *testing.T) {
			p := recipe(t)
			c := p.job.Template.Spec.Containers[0]
			if rule := p.job.PodFailurePolicy.Rules[0]; p.n != 4 || rule.OnExitCodes.ContainerName != c.Name || p.job.Template.Spec.RestartPolicy != "Never" || len(c.Command) > 0 {
				t.Errorf("%d pods of %+v", p.n, p.job)
			}
			root := t.TempDir()
			for dir, text := range map[string]string{"runs": "", "etc/plimsoll": strings.Repeat("5a", 32) + "\n"} {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(root, dir, "secret"), []byte(text), 0o400); err != nil { // who owns it is who reads it here
					t.Fatal(err)
				}
			}
			out := filepath.Join(root, "runs", "glyphs")

			all := p.run(t, root, "--steps", endless)
			all[0].until(out, 20)
			if err := all[2].Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for i, pod := range all {
				if code := pod.end(); !p.again(code) {
					t.Errorf("pod %d: exit code %d is not made again:\n%s", i, code, pod.err.String())
				}
			}
			steps := logged(out) + 20
			all = p.run(t, root, "--steps", strconv.Itoa(steps))
			for _, pod := range all {
				pod.ends(0)
			}
			want := asOneProcess(t, p.n, steps)
			if got := summaryOf(t, all[0].out.String()); got.WeightsSHA256 != want || got.ResumedFrom < 20 {
				t.Errorf("weights %s, resumed from step %d, want %s", got.WeightsSHA256, got.ResumedFrom, want)
			}

			codes, final := []int{}, 0
			for _, pod := range p.run(t, root, "--memory", "1KiB", "--steps", strconv.Itoa(2*steps)) {
				code := pod.end()
				codes = append(codes, code)
				if !p.again(code) {
					final++
				}
			}
			if final == 0 || slices.Contains(codes, 0) {
				t.Errorf("exit codes %v: it would be tried again", codes)
			}
		})
	}
}
