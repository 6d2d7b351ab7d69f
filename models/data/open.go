package data

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll/internal/names"
)

// registered are the data sets that others have made known.
var registered []Info

// Register makes a data set of one's own known, to Open and to all that take a data set's name; call it from an init function. A name
// that is taken or has a colon, or no Open, is a bug of the caller: Register panics.
func Register(info Info) {
	if info.Open == nil || strings.Contains(info.Name, ":") || slices.Contains(Names(), info.Name) {
		panic(fmt.Sprintf("BUG: data set %q has no Open, or a colon in its name, or another one has its name", info.Name))
	}
	registered = append(registered, info)
}

// Known returns the built-in data sets, sorted by name, and those that are registered.
func Known() []Info {
	return append([]Info{clustersInfo, digitsInfo, glyphsInfo, shapesInfo}, registered...)
}

// Files returns the readers of the user's images, sorted by name.
func Files() []Info { return []Info{cifar10Info, folderInfo, idxInfo, masksInfo, npyInfo} }

// Texts returns the sets of text, sorted by name: the built-in one and the readers of the user's files.
func Texts() []Info {
	return []Info{jsonlInfo, nanoGPTInfo, opticksInfo, parquetInfo, textInfo, tokensInfo}
}

// all returns every data set that Open knows.
func all() []Info { return slices.Concat(Known(), Files(), Texts()) }

// Open returns the data set of a name: a built-in one, or a reader and a path, as in "folder:/data/flowers". Errors:
// ErrUnknown, which lists the known names, ErrOption, and those of the files.
func Open(name string, o Options) (Dataset, error) {
	if o.Channels == 0 {
		o.Channels = 3
	}
	info, path, err := lookup(name)
	if err != nil {
		return nil, err
	}
	if err := o.validate(info); err != nil {
		return nil, err
	}
	return info.Open(path, o)
}

// lookup finds the data set of a name and the path in it.
func lookup(name string) (info Info, path string, err error) {
	for _, info := range all() {
		kind, _, inFiles := strings.Cut(info.Name, ":")
		path, ok := strings.CutPrefix(name, kind+":")
		switch {
		case name == info.Name && !inFiles:
			return info, "", nil
		case !inFiles:
		case ok && path != "":
			return info, path, nil
		case ok || name == kind:
			return Info{}, "", fmt.Errorf("%w: data set %s is in files; say where: %s", ErrOption, kind, info.Name)
		}
	}
	return Info{}, "", names.Unknown(ErrUnknown, name, Names())
}

// Names lists what Open knows.
func Names() (names []string) {
	for _, info := range all() {
		names = append(names, info.Name)
	}
	return names
}

func (o Options) validate(info Info) error {
	switch {
	case info.Text:
		return o.validateText(info)
	case o.Length != 0:
		return fmt.Errorf("%w: data set %s has images, and the model reads text: give it text, as in %s or %s", ErrOption, info.Name, opticksInfo.Name, textInfo.Name)
	case o.Axes > 0:
		return o.validateNumbers(info)
	case o.Image < info.MinImage || o.Image > maxImage:
		return fmt.Errorf("%w: data set %s with images of %d pixels a side; %d to %d work", ErrOption, info.Name, o.Image, info.MinImage, maxImage)
	case o.Channels < 1 || o.Channels > 1024:
		return fmt.Errorf("%w: data set %s with %d channels; 1 to 1024 work", ErrOption, info.Name, o.Channels)
	}
	return nil
}

// validateNumbers refuses samples that are no numbers N,F or N,C,T.
func (o Options) validateNumbers(info Info) error {
	if !info.Numbers {
		return fmt.Errorf("%w: data set %s has images, and the model reads numbers, %s: give it such, as in --data %s or %s",
			ErrOption, info.Name, axesNames[o.Axes], clustersInfo.Name, npyInfo.Name)
	}
	if min(o.Channels, o.Image) < 1 || max(o.Channels, o.Image) > mostNumbers {
		return fmt.Errorf("%w: data set %s with samples of %dx%d numbers; 1 to %d of each work", ErrOption, info.Name, o.Channels, o.Image, mostNumbers)
	}
	return nil
}

// mostNumbers bounds each axis of a sample of numbers.
const mostNumbers = 1 << 20

// validateText refuses samples that are no windows of tokens.
func (o Options) validateText(info Info) error {
	if o.Length == 0 {
		return fmt.Errorf("%w: data set %s has text, and the model reads images: give it images, as in %s or %s", ErrOption, info.Name, digitsInfo.Name, folderInfo.Name)
	}
	if o.Length < 1 || o.Length > mostTokens {
		return fmt.Errorf("%w: data set %s with samples of %d tokens; 1 to %d work", ErrOption, info.Name, o.Length, mostTokens)
	}
	return nil
}

// Text returns the bytes of a data set of text: opticks, or text:PATH. Errors: ErrOption, and those of the files.
func Text(name string) ([]byte, error) {
	kind, _, _ := strings.Cut(textInfo.Name, ":")
	if name == opticksInfo.Name {
		return loadOpticks()
	}
	if path, ok := strings.CutPrefix(name, kind+":"); ok && path != "" {
		return readText(path)
	}
	return nil, fmt.Errorf("%w: %q is no text: give %s or %s", ErrOption, name, opticksInfo.Name, textInfo.Name)
}
