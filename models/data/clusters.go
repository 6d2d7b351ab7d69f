package data

import "math/rand/v2"

var clustersInfo = Info{
	Name:     "clusters",
	Summary:  "an endless stream of points about the center of each class, seeded, of any shape; as many classes as --classes",
	Source:   "drawn by the program",
	MinImage: 1,
	Numbers:  true,
	Open:     openClusters,
}

const (
	clustersClasses = 10  // without --classes
	clustersTest    = 250 // of all classes in turn
	clustersCenter  = 0.8 // deviation of the centers' numbers
	clustersNoise   = 0.6 // and about them: altogether it is 1
)

// clusters is the data set of that name: a number of a sample is the one of its class's center, and noise.
type clusters struct {
	options Options
	classes int
}

func openClusters(_ string, o Options) (Dataset, error) {
	c := &clusters{o, o.Classes}
	if c.classes == 0 {
		c.classes = clustersClasses
	}
	return c, nil
}

func (c *clusters) Name() string    { return clustersInfo.Name }
func (c *clusters) Classes() int    { return c.classes }
func (c *clusters) Shape() [3]int   { return c.options.shape() }
func (c *clusters) TrainLen() int64 { return 0 }
func (c *clusters) TestLen() int64  { return clustersTest }

// Fill implements Dataset; it never fails.
func (c *clusters) Fill(split Split, index int64, dst []float32) (int, error) {
	if split == Test {
		index %= clustersTest
	}
	label := int(index % int64(c.classes))
	var center, noise rand.PCG
	center.Seed(hash(c.options.Seed, centerKey, uint64(label)), centerKey)
	stream(&noise, c.options.Seed, split, index)
	for i := range dst {
		dst[i] = float32(clustersCenter*spread(&center)) + float32(clustersNoise*spread(&noise))
	}
	return label, nil
}

// spread draws from a triangle of unit variance about 0: the sum of two uniform numbers.
func spread(r *rand.PCG) float64 {
	const half = 1.224744871391589 // sqrt(3/2)
	return uniform(r, -half, half) + uniform(r, -half, half)
}
