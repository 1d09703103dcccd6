package coordtest

var faults = []test{}
var histories = []test{}
