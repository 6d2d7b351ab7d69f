// Package schemas holds the manifests beside it to the schemas that their projects publish, as an API server would. It is a module of its
// own: none of this is linked into the program.
package schemas

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is the schema of one kind of custom resource.
type Schema struct {
	structural *schema.Structural
	basic      validation.SchemaValidator
	rules      *cel.Validator
}

// Published reads the schema of a version out of the definition (CRD) in a module that go.mod names.
func Published(module, file, version string) (*Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m %s: %w", module, err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, v := range crd.Spec.Versions {
		if v.Name == version {
			return newSchema(v.Schema.OpenAPIV3Schema)
		}
	}
	return nil, fmt.Errorf("%s has no version %s", file, version)
}

func newSchema(published *apiextensionsv1.JSONSchemaProps) (s *Schema, err error) {
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(published, &props, nil); err != nil {
		return nil, err
	}
	s = &Schema{}
	if s.structural, err = schema.NewStructural(&props); err != nil {
		return nil, err
	}
	if s.basic, _, err = validation.NewSchemaValidator(&props); err != nil {
		return nil, err
	}
	s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s, nil
}

// Check says what an API server would refuse in an object, and which fields it would drop because it does not know them. It fills in
// the defaults.
func (s *Schema) Check(object map[string]any) (all field.ErrorList) {
	for _, path := range pruning.PruneWithOptions(object, s.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		all = append(all, field.Invalid(field.NewPath(path), "", "there is no such field"))
	}
	defaulting.Default(object, s.structural)
	all = append(all, validation.ValidateCustomResource(nil, object, s.basic)...)
	all = append(all, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	broken, _ := s.rules.Validate(context.Background(), nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(all, broken...)
}
