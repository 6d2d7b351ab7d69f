package schemas

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kind is how objects of a kind are checked: by the type that its project's programs read it into, and by its published schema.
type kind struct {
	into         func() any
	module, file string // of its definition; "" where it is Kubernetes's own
	version      string
	within       func(object map[string]any) map[string]any // an object of that definition around it; nil: itself
}

const (
	trainerModule = "github.com/kubeflow/trainer/v2"
	trainerFiles  = "manifests/base/crds/trainer.kubeflow.org_"
	jobsetModule  = "sigs.k8s.io/jobset"
	jobsetFile    = "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
)

var kinds = map[string]kind{
	"v1 Service":               {into: func() any { return new(core.Service) }},
	"v1 PersistentVolumeClaim": {into: func() any { return new(core.PersistentVolumeClaim) }},
	// Kubernetes publishes no definition of a Job, but that of a JobSet holds Jobs.
	"batch/v1 Job":                                  {func() any { return new(batch.Job) }, jobsetModule, jobsetFile, "v1alpha2", inJobSet},
	"jobset.x-k8s.io/v1alpha2 JobSet":               {func() any { return new(jobset.JobSet) }, jobsetModule, jobsetFile, "v1alpha2", nil},
	"trainer.kubeflow.org/v1alpha1 TrainJob":        {func() any { return new(trainer.TrainJob) }, trainerModule, trainerFiles + "trainjobs.yaml", "v1alpha1", nil},
	"trainer.kubeflow.org/v1alpha1 TrainingRuntime": {func() any { return new(trainer.TrainingRuntime) }, trainerModule, trainerFiles + "trainingruntimes.yaml", "v1alpha1", nil},
}

func inJobSet(job map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": map[string]any{"name": "around"},
		"spec": map[string]any{"replicatedJobs": []any{map[string]any{"name": "job", "template": map[string]any{"spec": job["spec"]}}}},
	}
}

// check says what is wrong with an object; known are the schemas that have been read.
func check(text string, known map[string]*Schema) (wrong []string, err error) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%v %v", object["apiVersion"], object["kind"])
	k, ok := kinds[name]
	if !ok {
		return []string{"nothing is known of " + name}, nil
	}
	asJSON, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	strict, err := kubejson.UnmarshalStrict(asJSON, k.into())
	for _, e := range append(strict, err) {
		if e != nil {
			wrong = append(wrong, e.Error())
		}
	}
	if k.module == "" {
		return wrong, nil
	}
	if known[k.file] == nil {
		if known[k.file], err = Published(k.module, k.file, k.version); err != nil {
			return nil, err
		}
	}
	if k.within != nil {
		object = k.within(object)
	}
	for _, e := range known[k.file].Check(object) {
		wrong = append(wrong, e.Error())
	}
	return wrong, nil
}

// objects returns the text of every object in the manifests, by kind.
func objects(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v: %v", err, files)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "\n---\n") {
			_, name, _ := strings.Cut(part, "\nkind: ")
			name, _, _ = strings.Cut(name, "\n")
			if all[name] != "" {
				t.Fatalf("two objects of kind %q", name)
			}
			all[name] = part
		}
	}
	return all
}

// The manifests are what their published schemas say, without a field that nobody knows.
func TestManifestsFollowTheirSchemas(t *testing.T) {
	known, checked := map[string]*Schema{}, 0
	for name, text := range objects(t) {
		wrong, err := check(text, known)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", name, w)
		}
		checked++
	}
	if checked != len(kinds) || len(known) != 3 {
		t.Errorf("%d objects, %d schemas", checked, len(known))
	}
}

// A manifest with a mistake is refused: by the schema alone where it is a rule, by both where it is a field.
func TestMistakesAreFound(t *testing.T) {
	all, known := objects(t), map[string]*Schema{}
	for _, c := range []struct{ kind, old, new, want string }{
		{"Service", "clusterIP:", "clusterIp:", "clusterIp"},
		{"PersistentVolumeClaim", "accessModes: [ReadWriteMany]", "accessModes: ReadWriteMany", "accessModes"},
		{"Job", "completions: 4", "completion: 4", "spec.replicatedJobs[0].template.spec.completion"},
		{"Job", "backoffLimit: 80", "backoffLimit: many", "backoffLimit"},
		{"Job", "operator: In", "", "operator: Required value"},
		{"Job", "containerName: plimsoll", "container: plimsoll", "onExitCodes.container"},
		{"JobSet", "action: FailJobSet", "action: Fail", "Unsupported value: \"Fail\""},
		{"JobSet", "replicatedJob: ranks", "", "coordinator.replicatedJob: Required value"},
		{"JobSet", "secretName: plimsoll", "secret: plimsoll", "secret.secret"},
		{"JobSet", "- name: ranks", "- nam: ranks", "name: Required value"},
		{"TrainJob", "numNodes: 4", "numNodes: four", "numNodes"},
		{"TrainJob", "numProcPerNode: 1", "procPerNode: 1", "procPerNode"},
		{"TrainJob", "kind: TrainingRuntime\n    name: plimsoll", "kind: TrainingRuntime", "runtimeRef.name: Required value"},
		{"TrainingRuntime", "torch: {}", "torch: {}\n    mpi: {}", "Only one"},
		{"TrainingRuntime", "maxRestarts: 20", "restarts: 20", "failurePolicy.restarts"},
	} {
		text := strings.Replace(all[c.kind], c.old, c.new, 1)
		if text == all[c.kind] {
			t.Fatalf("%s has no %q", c.kind, c.old)
		}
		wrong, err := check(text, known)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, c.want) }) {
			t.Errorf("%s with %q: %q, want %q", c.kind, c.new, wrong, c.want)
		}
	}
}
