// Checks objects of KEDA's own kinds (a JSON array on the standard input) against the schemas of its release.
import { readFileSync } from "node:fs";
import * as kinds from "@kubernetes-models/keda/keda.sh/v1alpha1";

const objects = JSON.parse(readFileSync(0, "utf8")).filter(({ apiVersion }) => apiVersion === "keda.sh/v1alpha1");
for (const object of objects) new kinds[object.kind](object).validate();
if (!objects.length) throw new Error("there is no object of KEDA's");
console.log(`${objects.length} objects of KEDA are as their schemas say`);
