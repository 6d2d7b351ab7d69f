package schemas

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	trainertesting "github.com/kubeflow/trainer/v2/pkg/util/testing"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetcontrollers "sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/yaml"
)

// read decodes an object into its project's type, in a namespace.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	any(object).(client.Object).SetNamespace(namespace)
	any(object).(client.Object).SetUID("1")
	return object
}

const namespace = "default"

// cluster holds objects in memory for the controllers.
func cluster(t *testing.T, objects ...client.Object) (client.Client, client.FieldIndexer) {
	t.Helper()
	b := trainertesting.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&jobset.JobSet{})
	indexer := trainertesting.AsIndex(b)
	if err := jobsetcontrollers.SetupJobSetIndexes(t.Context(), indexer); err != nil {
		t.Fatal(err)
	}
	return b.Build(), indexer
}

// jobSetOf returns the JobSet that Kubeflow Trainer makes of the TrainJob and its runtime.
func jobSetOf(t *testing.T, all map[string]string) *jobset.JobSet {
	t.Helper()
	c, indexer := cluster(t, read[trainer.TrainingRuntime](t, all["TrainingRuntime"]))
	r, err := trainerruntime.NewTrainingRuntime(t.Context(), c, indexer, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := r.NewObjects(t.Context(), read[trainer.TrainJob](t, all["TrainJob"]))
	if err != nil || len(made) != 1 {
		t.Fatalf("%v: %d objects", err, len(made))
	}
	text, err := json.Marshal(made[0])
	if err != nil {
		t.Fatal(err)
	}
	return read[jobset.JobSet](t, string(text))
}

// jobOf returns the Job that the JobSet controller makes of a JobSet, and the Service of its pods. It sets the fields that JobSet's webhook
// fills in before: the webhook's package needs another version of controller-runtime than Trainer.
func jobOf(t *testing.T, set *jobset.JobSet) (*batch.Job, *core.Service) {
	t.Helper()
	completion, yes := batch.IndexedCompletion, true
	set.Spec.Network = &jobset.Network{EnableDNSHostnames: &yes, PublishNotReadyAddresses: &yes}
	set.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = &completion
	set.ResourceVersion = ""
	c, _ := cluster(t, set)
	reconciler := jobsetcontrollers.NewJobSetReconciler(c, c.Scheme(), record.NewFakeRecorder(10))
	if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: set.Name}}); err != nil {
		t.Fatal(err)
	}
	return only(t, c, &batch.JobList{}, func(l *batch.JobList) []batch.Job { return l.Items }), only(t, c, &core.ServiceList{}, func(l *core.ServiceList) []core.Service { return l.Items })
}

// only returns the one object of a kind.
func only[L client.ObjectList, T any](t *testing.T, c client.Client, list L, items func(L) []T) *T {
	t.Helper()
	if err := c.List(context.Background(), list); err != nil {
		t.Fatal(err)
	}
	all := items(list)
	if len(all) != 1 {
		t.Fatalf("%d of %T", len(all), list)
	}
	return &all[0]
}

// variables returns the environment variables of a Job's only container, as a pod sees them.
func variables(job *batch.Job) map[string]string {
	all := map[string]string{}
	for _, e := range job.Spec.Template.Spec.Containers[0].Env {
		all[e.Name] = e.Value
		if e.ValueFrom != nil {
			all[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	return all
}

// The projects' own controllers make pods of the manifests that find the first one by its name, know their number, and restart as is
// said beside them.
func TestControllersTellPodsWhoTheyAre(t *testing.T) {
	all := objects(t)
	const index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
	for name, c := range map[string]struct {
		set  *jobset.JobSet
		want map[string]string
	}{
		"JobSet": {read[jobset.JobSet](t, all["JobSet"]), map[string]string{"MASTER_ADDR": "metadata.annotations['jobset.sigs.k8s.io/coordinator']"}},
		"TrainJob": {jobSetOf(t, all), map[string]string{
			"PET_NNODES": "4", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": index, "PET_MASTER_ADDR": "plimsoll-node-0-0.plimsoll", "PET_MASTER_PORT": "29500",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			job, service := jobOf(t, c.set)
			if got := variables(job); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("variables %v, want %v", got, c.want)
			}
			first := job.Name + "-0." + service.Name // of an indexed Job's pod, in the Service that is its subdomain
			said := c.want["PET_MASTER_ADDR"]
			if said == "" {
				said = job.Spec.Template.Annotations["jobset.sigs.k8s.io/coordinator"]
			}
			if said != first || job.Spec.Template.Spec.Subdomain != service.Name || service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses {
				t.Errorf("rank 0 is said to be %s and is %s in %+v", said, first, service.Spec)
			}
			s := job.Spec
			if *s.CompletionMode != batch.IndexedCompletion || *s.Completions != 4 || *s.Parallelism != 4 || *s.BackoffLimit != 3 ||
				s.Template.Spec.RestartPolicy != core.RestartPolicyNever || !slices.Equal(s.PodFailurePolicy.Rules[0].OnExitCodes.Values, []int32{2, 3}) {
				t.Errorf("the Job is %+v", s)
			}
			if f := c.set.Spec.FailurePolicy; f == nil || f.MaxRestarts != 20 {
				t.Errorf("failure policy %+v", f)
			}
			container := s.Template.Spec.Containers[0]
			if container.Args[0] != "train" || len(container.VolumeMounts) != 2 || container.Resources.Limits.Cpu().Value() != 4 {
				t.Errorf("the container is %+v", container)
			}
		})
	}
}
